package boot

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"pgregory.net/rapid"
)

// load runs Load as a node would: arguments, variables and the text of a file.
func load(t testing.TB, args, environ []string, yaml string) (Config, error) {
	t.Helper()
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	AddFlags(fs)
	if yaml != "" {
		path := filepath.Join(t.TempDir(), "tidewire.yaml")
		if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(slices.Clone(args), "--config", path)
	}
	if err := fs.Parse(args); err != nil {
		t.Fatalf("parse %q: %v", args, err)
	}
	return Load(Source{Flags: fs, Environ: environ, Hostname: "box"})
}

func TestDefaultsAreACompleteConfiguration(t *testing.T) {
	c, err := load(t, nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	if c.HTTP != "127.0.0.1:8080" || c.RPC != "127.0.0.1:7400" || c.Raft != "127.0.0.1:7401" || c.Gossip != "127.0.0.1:7402" {
		t.Errorf("listeners %s %s %s %s", c.HTTP, c.RPC, c.Raft, c.Gossip)
	}
	if c.Data != "./tidewire-data" || c.Name != "box" || c.BootstrapExpect != 1 || len(c.Roles) != 3 {
		t.Errorf("data %q name %q expect %d roles %v", c.Data, c.Name, c.BootstrapExpect, c.Roles)
	}
	if c.SlowConsumerTimeout != 10*time.Second || c.DrainTimeout != 10*time.Second || c.MinFreeBytes != 64<<20 || c.MaxFrameBytes != 2<<20 {
		t.Errorf("timeouts %s %s, min free %d, frame %d", c.SlowConsumerTimeout, c.DrainTimeout, c.MinFreeBytes, c.MaxFrameBytes)
	}
	if c.Join != nil || c.ReplicaLag != 2*time.Second || c.BrokerLease != 2*time.Second || c.ReplicaReplace != 10*time.Minute || c.ScrubRate != 8<<20 {
		t.Errorf("join %v, lag %s, lease %s, replace %s, scrub %d", c.Join, c.ReplicaLag, c.BrokerLease, c.ReplicaReplace, c.ScrubRate)
	}
	if c.LogLevel != slog.LevelInfo || c.LogFormat != "text" {
		t.Errorf("log %v %s", c.LogLevel, c.LogFormat)
	}
	if len(c.Effective()) == 0 {
		t.Error("no effective configuration to print")
	}
}

func TestFlagWinsOverVariableOverFileOverDefault(t *testing.T) {
	const yaml = "slow_consumer_timeout: 3s\n"
	environ := []string{"TIDEWIRE_SLOW_CONSUMER_TIMEOUT=4s"}
	for _, tc := range []struct {
		name    string
		args    []string
		environ []string
		yaml    string
		want    time.Duration
		source  string
	}{
		{"default", nil, nil, "", 10 * time.Second, "default"},
		{"file", nil, nil, yaml, 3 * time.Second, "file"},
		{"variable", nil, environ, yaml, 4 * time.Second, "variable"},
		{"flag", []string{"--slow-consumer-timeout=5s"}, environ, yaml, 5 * time.Second, "flag"},
		{"an empty variable is none", nil, []string{"TIDEWIRE_SLOW_CONSUMER_TIMEOUT="}, yaml, 3 * time.Second, "file"},
		{"a flag given its default wins too", []string{"--slow-consumer-timeout=10s"}, environ, yaml, 10 * time.Second, "flag"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := load(t, tc.args, tc.environ, tc.yaml)
			if err != nil {
				t.Fatal(err)
			}
			if c.SlowConsumerTimeout != tc.want {
				t.Errorf("got %s, want %s", c.SlowConsumerTimeout, tc.want)
			}
			for _, e := range c.Effective() {
				if e.Name == "slow_consumer_timeout" && (e.Source != tc.source || e.Value != tc.want.String()) {
					t.Errorf("effective %+v, want source %s", e, tc.source)
				}
			}
		})
	}
}

func TestTheFileMayBeNamedByAVariable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.yaml")
	if err := os.WriteFile(path, []byte("zone: north\nroles: [gateway, broker, coordinator]\ninsecure: true\nmin_free_bytes: 1048576\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := load(t, nil, []string{"TIDEWIRE_CONFIG=" + path, "OTHER=1", "TIDEWIRE_SERVER=http://x"}, "")
	if err != nil {
		t.Fatal(err)
	}
	if c.Zone != "north" || !c.Insecure || c.MinFreeBytes != 1<<20 {
		t.Errorf("got %+v", c)
	}
}

func TestFaultsNameTheSettingItsPlaceAndWhatIsAllowed(t *testing.T) {
	for _, tc := range []struct {
		name    string
		args    []string
		environ []string
		yaml    string
		want    []string // all of them in one error
	}{
		{"variable misspelt", nil, []string{"TIDEWIRE_SLOW_CONSUMER_TIMOUT=1s"}, "", []string{"TIDEWIRE_SLOW_CONSUMER_TIMOUT", "nearest is TIDEWIRE_SLOW_CONSUMER_TIMEOUT"}},
		{"file key misspelt", nil, nil, "allowed_origin: x", []string{"allowed_origin: no such", "nearest is allowed_origins"}},
		{"file key with dashes", nil, nil, "log-level: info", []string{"nearest is log_level"}},
		{"file names a file", nil, nil, "config: x.yaml", []string{"config: no such setting"}},
		{"nested file", nil, nil, "log:\n  level: info", []string{"log.level: no such", "nearest is log_level"}},
		{"empty file value", nil, nil, "zone:", []string{"zone: needs one value"}},
		{"list in a list", nil, nil, "allowed_origins: [[a]]", []string{"needs one value"}},
		{"no YAML", nil, nil, "a: [", []string{"not a YAML file"}},
		{"key twice", nil, nil, "zone: a\nzone: b", []string{"not a YAML file", "zone"}},
		{"file missing", []string{"--config=/nonexistent/x.yaml"}, nil, "", []string{"config:", "/nonexistent/x.yaml"}},
		{"kubernetes service", nil, []string{"TIDEWIRE_SERVICE_HOST=10.0.0.1"}, "", []string{"enableServiceLinks"}},
		{"nothing is near", nil, []string{"TIDEWIRE_XYZZY=1"}, "colour: red", []string{"TIDEWIRE_XYZZY: no such setting; tidewire serve --help lists them all", "colour: no such setting; tidewire serve --help"}},
		{"TLS by name", nil, []string{"TIDEWIRE_TLS_CERT=x"}, "tls_key: x", []string{"TIDEWIRE_TLS_CERT: this version has no TLS", "tls_key: this version has no TLS"}},
		{"days", []string{"--drain-timeout=7d"}, nil, "", []string{`"7d" is no duration`, "168h"}},
		{"all faults at once", []string{"--log-level=loud", "--http=nowhere"}, []string{"TIDEWIRE_ZONE=a b", "TIDEWIRE_XYZ=1"}, "drain_timeout: never", []string{
			`--log-level: "loud" is none of`, `--http: "nowhere" is no host:port`, "TIDEWIRE_ZONE:", "TIDEWIRE_XYZ: no such", "drain_timeout: \"never\" is no duration",
		}},
		{"duration out of bounds", []string{"--drain-timeout=1ns"}, nil, "", []string{"is not between 100ms and 10m"}},
		{"negative number", []string{"--max-connections=-1"}, nil, "", []string{"--max-connections: -1 is not between 0"}},
		{"size", []string{"--max-frame-bytes=1KB"}, nil, "", []string{"--max-frame-bytes", "64KiB"}},
		{"size too large", []string{"--min-free-bytes=9000000TiB"}, nil, "", []string{"--min-free-bytes"}},
		{"origin wildcard", []string{"--allowed-origins=*"}, nil, "", []string{"wildcard"}},
		{"origin with a path", []string{"--allowed-origins=https://a.example/x"}, nil, "", []string{"no origin"}},
		{"port out of range", []string{"--http=127.0.0.1:70000"}, nil, "", []string{"no host:port"}},
		{"advertise everything", []string{"--advertise-rpc=0.0.0.0:1"}, nil, "", []string{"cannot be dialled"}},
		{"advertise any port", []string{"--advertise-raft=box:0"}, nil, "", []string{"cannot be dialled"}},
		{"same port twice", []string{"--http=127.0.0.1:9", "--rpc=127.0.0.1:9"}, nil, "", []string{"taken by http"}},
		{"beyond loopback", []string{"--http=0.0.0.0:8080"}, nil, "", []string{"http: 0.0.0.0:8080", "--insecure", "authenticates nobody"}},
		{"a name beyond loopback", []string{"--http=box:8080"}, nil, "", []string{"--insecure"}},
		{"rpc beyond loopback", []string{"--rpc=192.0.2.1:7400"}, nil, "", []string{"rpc: 192.0.2.1:7400", "--insecure"}},
		{"everything, and nothing to dial", []string{"--insecure", "--raft=:7401"}, nil, "", []string{"advertise_raft"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := load(t, tc.args, tc.environ, tc.yaml)
			if err == nil {
				t.Fatal("taken")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error lacks %q:\n%v", want, err)
				}
			}
		})
	}
}

func TestListenersBeyondLoopbackNeedInsecureAndSomethingToDial(t *testing.T) {
	c, err := load(t, []string{"--insecure", "--http=0.0.0.0:8080"}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	if got := Advertised(c.AdvertiseHTTP, "[::]:41234"); got != "box:41234" {
		t.Errorf("advertised %s", got)
	}
	c, err = load(t, []string{"--http=[::1]:0", "--rpc=localhost:0", "--raft=127.0.0.2:0"}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	if got := Advertised(c.AdvertiseHTTP, "[::1]:55"); got != "[::1]:55" {
		t.Errorf("advertised %s", got)
	}
	if got := Advertised("edge.example:443", "[::1]:55"); got != "edge.example:443" {
		t.Errorf("advertised %s", got)
	}
}

func TestOriginsAreLoweredAndSplit(t *testing.T) {
	c, err := load(t, []string{"--allowed-origins= https://A.example , http://b.example:8443/ ,"}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"https://a.example", "http://b.example:8443"}; !slices.Equal(c.AllowedOrigins, want) {
		t.Errorf("got %v", c.AllowedOrigins)
	}
}

func TestSettingsAreSpelledAlikeEverywhere(t *testing.T) {
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	AddFlags(fs)
	seen := map[string]bool{}
	for _, s := range Settings() {
		if seen[s.Name] {
			t.Errorf("%s is there twice", s.Name)
		}
		seen[s.Name] = true
		if fs.Lookup(s.Flag()) == nil {
			t.Errorf("%s has no flag", s.Name)
		}
		if s.set == nil && s.Name != "config" {
			t.Errorf("%s is taken and ignored", s.Name)
		}
		if strings.ToLower(strings.TrimPrefix(s.Variable(), EnvPrefix)) != s.Name {
			t.Errorf("%s as a variable is %s", s.Name, s.Variable())
		}
	}
}

func TestSecretsAreMasked(t *testing.T) {
	if e := effective(Setting{Name: "k", Secret: true}, "hush", "flag"); strings.Contains(e.Value, "hush") {
		t.Errorf("shown: %+v", e)
	}
	if e := effective(Setting{Name: "k", Secret: true}, "", ""); e.Value != "" || e.Source != "default" {
		t.Errorf("an absent secret looks set: %+v", e)
	}
}

func TestSizesAreReadInAllUnits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(0, 1<<20).Draw(t, "n")
		unit := rapid.IntRange(0, 4).Draw(t, "unit")
		text := rapid.SampledFrom([]string{"", " "}).Draw(t, "space")
		if unit == 0 {
			text = ""
		}
		text = slog.Int64Value(n).String() + text + []string{"", "KiB", "MiB", "GiB", "TiB"}[unit]
		got, err := ParseSize(text)
		if err != nil || got != n<<(10*unit) {
			t.Fatalf("%q: %d, %v", text, got, err)
		}
	})
	for _, bad := range []string{"", "-1", "1.5MiB", "KiB", "9223372036854775808", "8388608TiB", "1 K", "0x10"} {
		if n, err := ParseSize(bad); err == nil {
			t.Errorf("%q is taken as %d", bad, n)
		}
	}
}

// FuzzFile holds that no file makes Load panic, and that what it takes is valid.
func FuzzFile(f *testing.F) {
	for _, s := range []string{"http: 127.0.0.1:0\nzone: a", "max_connections: 1e3", "allowed_origins: [https://a.b]", "{}", "", "&a [*a]", "zone: !!binary aGk=", "? a\n: b", "roles: gateway,broker,coordinator"} {
		f.Add(s)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(dir, "f.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Load(Source{Environ: []string{"TIDEWIRE_CONFIG=" + path}, Hostname: "box"})
		if err != nil {
			return
		}
		if c.Name == "" || c.Data == "" || len(c.Roles) == 0 || c.DrainTimeout < minTimeout || c.MaxFrameBytes < minFrameBytes {
			t.Fatalf("taken, though not valid: %+v", c)
		}
		if !c.Insecure && len(c.check()) > 0 {
			t.Fatalf("taken, though %v", c.check())
		}
	})
}
