package boot

import (
	"fmt"
	"log/slog"
	"math/bits"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"tidewire/internal/wire"
)

// Each function here makes the reader of one kind of value. The errors say what
// is allowed; Load adds the setting's name and where the value came from.

func address(field func(*Config) *string) func(*Config, string) error {
	return func(c *Config, text string) error {
		if _, _, err := splitAddress(text); err != nil {
			return err
		}
		*field(c) = text
		return nil
	}
}

// advertise reads an address that others dial: one host, never all of them.
func advertise(field func(*Config) *string) func(*Config, string) error {
	return func(c *Config, text string) error {
		if text == "" {
			return nil
		}
		host, port, err := splitAddress(text)
		if err != nil {
			return err
		}
		if everyInterface(host) || port == 0 {
			return fmt.Errorf("%q cannot be dialled: name one host or address, and its port", text)
		}
		*field(c) = text
		return nil
	}
}

func splitAddress(text string) (host string, port uint16, err error) {
	bad := fmt.Errorf("%q is no host:port such as 127.0.0.1:8080", text)
	host, portText, err := net.SplitHostPort(text)
	if err != nil {
		return "", 0, bad
	}
	n, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || strings.ContainsAny(host, " /\t\r\n") {
		return "", 0, bad
	}
	return host, uint16(n), nil
}

func everyInterface(host string) bool {
	if host == "" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsUnspecified()
}

// loopback reports whether nobody off this machine can reach the host. A name
// other than localhost may resolve to anything, so it counts as reachable.
func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

func folder(c *Config, text string) error {
	if text == "" || strings.ContainsRune(text, 0) {
		return fmt.Errorf("needs the path of a folder")
	}
	c.Data = text
	return nil
}

const maxLabelBytes = 64

func label(field func(*Config) *string) func(*Config, string) error {
	return func(c *Config, text string) error {
		if text != "" && !isLabel(text) {
			return fmt.Errorf("%q is not 1 to %d of A-Z a-z 0-9 . _ -, the first a letter or a digit", text, maxLabelBytes)
		}
		*field(c) = text
		return nil
	}
}

func isLabel(text string) bool {
	if text == "" || len(text) > maxLabelBytes {
		return false
	}
	for i := range len(text) {
		switch c := text[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case i > 0 && (c == '.' || c == '_' || c == '-'):
		default:
			return false
		}
	}
	return true
}

// Roles of a node.
const (
	Gateway     = "gateway"
	Broker      = "broker"
	Coordinator = "coordinator"
)

func roles(c *Config, text string) error {
	all := []string{Gateway, Broker, Coordinator}
	var given []string
	for _, r := range list(text) {
		if !slices.Contains(all, r) {
			return fmt.Errorf("%q is no role; the roles are %s", r, strings.Join(all, ", "))
		}
		if !slices.Contains(given, r) {
			given = append(given, r)
		}
	}
	if len(given) == 0 {
		return fmt.Errorf("a node has one role at least; the roles are %s", strings.Join(all, ", "))
	}
	c.Roles = slices.DeleteFunc(all, func(r string) bool { return !slices.Contains(given, r) })
	return nil
}

// seeds reads addresses of nodes that are dialled to join them.
func seeds(c *Config, text string) error {
	c.Join = nil
	for _, seed := range list(text) {
		host, port, err := splitAddress(seed)
		if err != nil {
			return fmt.Errorf("%q is no gossip address of a node such as 10.0.0.1:7402", seed)
		}
		if everyInterface(host) || port == 0 {
			return fmt.Errorf("%q cannot be dialled: name one host or address, and its port", seed)
		}
		if !slices.Contains(c.Join, seed) {
			c.Join = append(c.Join, seed)
		}
	}
	if len(c.Join) > mostSeeds {
		return fmt.Errorf("%d addresses are more than %d: a few nodes that are there most of the time are enough", len(c.Join), mostSeeds)
	}
	return nil
}

// bootstrapExpect reads how many coordinators found a cluster. Not given it stays
// 0: what that means depends on join.
func bootstrapExpect(c *Config, text string) error {
	c.BootstrapExpect = 0
	if text == "" {
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("%q is no number of coordinators", text)
	}
	if n < 1 || n > mostCoordinators {
		return fmt.Errorf("%d is not between 1 and %d; 3 and 5 are usual", n, mostCoordinators)
	}
	c.BootstrapExpect = n
	return nil
}

func logLevel(c *Config, text string) error {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	level, ok := levels[strings.ToLower(text)]
	if !ok {
		return fmt.Errorf("%q is none of debug, info, warn, error", text)
	}
	c.LogLevel = level
	return nil
}

func oneOf(field func(*Config) *string, allowed ...string) func(*Config, string) error {
	return func(c *Config, text string) error {
		if !slices.Contains(allowed, text) {
			return fmt.Errorf("%q is none of %s", text, strings.Join(allowed, ", "))
		}
		*field(c) = text
		return nil
	}
}

func boolean(field func(*Config) *bool) func(*Config, string) error {
	return func(c *Config, text string) error {
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		*field(c) = b
		return nil
	}
}

// DurationForm is how a duration is written, for messages. Days are missing on purpose: not
// every day has 24 hours.
const DurationForm = "duration such as 250ms, 10s, 2m or 168h (hours are the longest unit)"

func duration(field func(*Config) *time.Duration, low, high time.Duration) func(*Config, string) error {
	return func(c *Config, text string) error {
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is no %s", text, DurationForm)
		}
		if d < low || d > high {
			return fmt.Errorf("%s is not between %s and %s", text, wire.ShortDuration(low), wire.ShortDuration(high))
		}
		*field(c) = d
		return nil
	}
}

func number(field func(*Config) *int, low, high int) func(*Config, string) error {
	return func(c *Config, text string) error {
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%q is no whole number", text)
		}
		if n < low || n > high {
			return fmt.Errorf("%d is not between %d and %d", n, low, high)
		}
		*field(c) = n
		return nil
	}
}

func size(set func(*Config, int64), low, high int64) func(*Config, string) error {
	return func(c *Config, text string) error {
		n, err := ParseSize(text)
		if err != nil {
			return err
		}
		if n < low || n > high {
			return fmt.Errorf("%s is not between %d and %d bytes", text, low, high)
		}
		set(c, n)
		return nil
	}
}

// ParseSize reads a number of bytes: plain, or with KiB, MiB, GiB or TiB.
func ParseSize(text string) (int64, error) {
	bad := fmt.Errorf("%q is no size such as 65536, 64KiB or 2MiB", text)
	digits, shift := text, 0
	for i, unit := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if rest, ok := strings.CutSuffix(text, unit); ok {
			digits, shift = strings.TrimSpace(rest), 10*(i+1)
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || bits.Len64(uint64(n))+shift > 63 {
		return 0, bad
	}
	return n << shift, nil
}

func origins(c *Config, text string) error {
	var all []string
	for _, o := range list(text) {
		if strings.Contains(o, "*") {
			return fmt.Errorf("%q has a wildcard: list each origin by itself, as https://app.example.com", o)
		}
		u, err := url.Parse(o)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil ||
			strings.TrimSuffix(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
			return fmt.Errorf("%q is no origin such as https://app.example.com", o)
		}
		all = append(all, strings.ToLower(u.Scheme+"://"+u.Host))
	}
	c.AllowedOrigins = all
	return nil
}

// list splits at commas; spaces around the parts and empty parts do not count.
func list(text string) []string {
	var parts []string
	for p := range strings.SplitSeq(text, ",") {
		if p = strings.TrimSpace(p); p != "" {
			parts = append(parts, p)
		}
	}
	return parts
}
