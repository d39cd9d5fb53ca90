package web

import (
	"math"
	"os"
	"regexp"
	"strconv"
	"testing"
)

// Text has a contrast of at least 4.5 on what it stands on (WCAG 2.2, AA).
func TestColoursHaveContrast(t *testing.T) {
	css, err := os.ReadFile("src/styles/base.css")
	if err != nil {
		t.Fatal(err)
	}
	themes := regexp.MustCompile(`(?s):root \{(.*?)\}`).FindAllStringSubmatch(string(css), -1)
	if len(themes) != 2 {
		t.Fatalf("%d themes", len(themes))
	}
	for i, theme := range themes {
		colour := map[string]float64{}
		for _, m := range regexp.MustCompile(`--([a-z0-9-]+): #([0-9a-f]{6});`).FindAllStringSubmatch(theme[1], -1) {
			colour[m[1]] = luminance(m[2])
		}
		pairs := [][2]string{{"on-accent", "accent"}}
		for _, text := range []string{"ink", "soft", "accent", "good", "wait", "bad"} {
			pairs = append(pairs, [2]string{text, "card"}, [2]string{text, "ground"}, [2]string{text, "hover"})
		}
		for n := range 6 { // they are also grounds for text in the colour of a card
			pairs = append(pairs, [2]string{"chart-" + strconv.Itoa(n+1), "card"})
		}
		for _, p := range pairs {
			hi, lo := max(colour[p[0]], colour[p[1]]), min(colour[p[0]], colour[p[1]])
			if c := (hi + 0.05) / (lo + 0.05); c < 4.5 {
				t.Errorf("theme %d: %s on %s has a contrast of %.2f", i, p[0], p[1], c)
			}
		}
	}
}

// luminance of a colour rrggbb, as WCAG has it.
func luminance(hex string) float64 {
	sum := 0.0
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(hex[2*i:2*i+2], 16, 8)
		if err != nil {
			panic(err)
		}
		c := float64(n) / 255
		if c <= 0.03928 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}
