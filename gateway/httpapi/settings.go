package httpapi

import (
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/wire"
)

// settingFields are the settings of a topic as clients name them.
var settingFields = []string{
	"replicas", "min_insync", "retention", "compaction", "max_message_bytes",
	"durability", "unclean", "idempotency_window", "policy",
}

// maxReplicas bounds what is handed to the coordinator, which knows how many
// brokers there are.
const maxReplicas = 1 << 16

// parseSpec reads the body of POST /topics/.
func parseSpec(body []byte) (cluster.TopicSpec, error) {
	var s cluster.TopicSpec
	err := wire.Object(body, append([]string{"name", "partitions"}, settingFields...), func(name string, v wire.Value) (err error) {
		switch name {
		case "name":
			s.Name, err = v.String()
		case "partitions":
			s.Partitions, err = integer(v, 1, cluster.MaxPartitions)
		default:
			err = setting(&s.SettingsPatch, name, v)
		}
		return err
	})
	if err == nil && s.Name == "" {
		err = invalid("name", "is needed: the topic's name")
	}
	return s, err
}

// parsePatch reads the body of PATCH /topics/{topic}.
func parsePatch(body []byte) (cluster.SettingsPatch, error) {
	var p cluster.SettingsPatch
	err := wire.Object(body, append([]string{"partitions"}, settingFields...), func(name string, v wire.Value) error {
		if name == "partitions" {
			return invalid("partitions", "cannot be changed here, and this version has no repartition; create a topic with as many as are needed")
		}
		return setting(&p, name, v)
	})
	return p, err
}

func setting(p *cluster.SettingsPatch, name string, v wire.Value) (err error) {
	switch name {
	case "replicas":
		p.Replicas, err = integer(v, 1, maxReplicas)
	case "min_insync":
		p.MinInsync, err = integer(v, 1, maxReplicas)
	case "retention":
		err = retention(p, v)
	case "compaction":
		on, wrong := v.Bool()
		if err = wrong; on {
			err = invalid("compaction", "takes false alone: this version does not compact topics")
		}
	case "max_message_bytes":
		p.MaxMessageBytes, err = integer(v, cluster.MinMessageBytes, cluster.MaxMessageBytes)
	case "durability":
		var s string
		if s, err = v.Choice(string(cluster.Fsync), string(cluster.Replicated)); err == nil {
			d := cluster.Durability(s)
			p.Durability = &d
		}
	case "unclean":
		var on bool
		if on, err = v.Bool(); err == nil {
			p.Unclean = &on
		}
	case "idempotency_window":
		p.IdempotencyWindow, err = timespan(v, 0, cluster.MaxIdempotencyWindow)
	case "policy":
		err = invalid("policy", "is not taken: this version has no topic policies")
	}
	return err
}

// maxRetentionAge bounds retention to what a duration can say with room to add.
const maxRetentionAge = 100 * 365 * 24 * time.Hour

func retention(p *cluster.SettingsPatch, v wire.Value) error {
	return v.Object([]string{"age", "bytes"}, func(name string, v wire.Value) (err error) {
		switch name {
		case "age":
			var d *time.Duration
			if d, err = timespan(v, 0, maxRetentionAge); err == nil {
				if *d != 0 && *d < cluster.MinRetentionAge {
					return invalid("retention.age", "takes 0s (for ever) or at least %s", cluster.MinRetentionAge)
				}
				p.RetentionAge = d
			}
		case "bytes":
			var n int64
			if n, err = v.Int(0, 1<<53-1); err == nil {
				if n != 0 && n < cluster.MinRetentionBytes {
					return invalid("retention.bytes", "takes 0 (no bound) or at least %d", cluster.MinRetentionBytes)
				}
				p.RetentionBytes = &n
			}
		}
		return err
	})
}

func integer(v wire.Value, lo, hi int64) (*int, error) {
	n, err := v.Int(lo, hi)
	if err != nil {
		return nil, err
	}
	i := int(n)
	return &i, nil
}

func timespan(v wire.Value, lo, hi time.Duration) (*time.Duration, error) {
	d, err := v.Duration(lo, hi)
	if err != nil {
		return nil, err
	}
	if d%time.Millisecond != 0 {
		return nil, fault.New(fault.Invalid, "field %q takes whole milliseconds", v.Name).With("field", v.Name)
	}
	return &d, nil
}
