package gateway

import (
	"strings"
	"testing"

	"tidewire/gateway/census"
)

func TestAFullDiskIsAWarning(t *testing.T) {
	for disk, warns := range map[census.Disk]bool{
		{Free: 0, Least: 64 << 20}:          true,
		{Free: 64<<20 - 1, Least: 64 << 20}: true,
		{Free: 64 << 20, Least: 64 << 20}:   false,
		{}:                                  false, // a node without a broker
	} {
		if text := diskFull(disk); (text != "") != warns || warns && !strings.Contains(text, "disk-full") {
			t.Errorf("%+v: %q", disk, text)
		}
	}
}
