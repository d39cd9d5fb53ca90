package obs

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// Build says which build a process is.
type Build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // of the source, if the build knew it
	Modified bool   `json:"modified,omitempty"` // the source had changes beyond the revision
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// ReadBuild reads what the linker and the Go tool left in the binary. A
// version given by the linker wins over the module's.
func ReadBuild(linked string) Build {
	b := Build{Version: linked, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if ok {
		if v := info.Main.Version; v != "(devel)" {
			b.Version = cmp.Or(b.Version, v)
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Revision = s.Value
			case "vcs.modified":
				b.Modified = s.Value == "true"
			}
		}
	}
	b.Version = cmp.Or(b.Version, "dev")
	return b
}

func (b Build) String() string {
	rev := ""
	if b.Revision != "" {
		rev = " (" + b.Revision[:min(12, len(b.Revision))]
		if b.Modified {
			rev += ", modified"
		}
		rev += ")"
	}
	return fmt.Sprintf("tidewire %s%s %s %s", b.Version, rev, b.Go, b.Platform)
}
