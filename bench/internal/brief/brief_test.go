package brief_test

import (
	"strings"
	"testing"

	"tidewire/bench/internal/brief"
)

const output = `{"kind":"floor","floor":"write + fdatasync","bytes":1024,"per_second":1475}
{"kind":"floor","floor":"websocket echo","server":{"cpu_us":20.5}}
{"kind":"floor","floor":"another","server":{"cpu_us":1}}
{"kind":"run","run":1,"server":{"cpu_us":90},"best":false}
{"kind":"run","run":2,"server":{"cpu_us":41},"best":true}
{"kind":"summary","sent":1092}
`

func TestTheBestRunIsSetBesideItsFloor(t *testing.T) {
	c, err := brief.Read(brief.Path{Name: "publish", Beat: "websocket echo"}, strings.NewReader(output))
	if err != nil || c.Node != 41 || c.Floor != 20.5 || c.Ratio() != 2 {
		t.Errorf("got %+v, %v", c, err)
	}
	if table := brief.Table([]brief.Cost{c}); !strings.HasSuffix(table, "| publish | 41.00 | 20.50 | 2.00 |\n") {
		t.Errorf("got %s", table)
	}
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	for name, text := range map[string]string{"no floor": `{"kind":"run","server":{"cpu_us":90},"best":true}`, "no run": output[:150], "no JSON": "tidewire: no"} {
		if c, err := brief.Read(brief.Path{Name: "publish", Beat: "websocket echo"}, strings.NewReader(text)); err == nil {
			t.Errorf("%s: got %+v", name, c)
		}
	}
}
