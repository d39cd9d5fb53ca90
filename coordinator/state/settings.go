package state

import (
	"fmt"
	"strings"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
)

// The names of settings, as the API has them.
const (
	fieldPartitions  = "partitions"
	fieldReplicas    = "replicas"
	fieldMinInsync   = "min_insync"
	fieldAge         = "retention.age"
	fieldBytes       = "retention.bytes"
	fieldMessage     = "max_message_bytes"
	fieldDurability  = "durability"
	fieldUnclean     = "unclean"
	fieldIdempotency = "idempotency_window"
)

func outside(field string, given any, allowed string) *cluster.Refusal {
	r := refuse(fault.Invalid, fmt.Sprintf("%s must be %s, not %v", field, allowed, given))
	r.Field, r.Allowed = field, allowed
	return r
}

// checkPatch checks each given setting by itself.
func checkPatch(p *cluster.SettingsPatch) *cluster.Refusal {
	if v := p.Replicas; v != nil && *v < 1 {
		return outside(fieldReplicas, *v, "at least 1")
	}
	if v := p.MinInsync; v != nil && *v < 1 {
		return outside(fieldMinInsync, *v, "at least 1")
	}
	if v := p.RetentionAge; v != nil && *v != 0 && *v < cluster.MinRetentionAge {
		return outside(fieldAge, short(*v), fmt.Sprintf("0 (for ever) or at least %s", short(cluster.MinRetentionAge)))
	}
	if v := p.RetentionBytes; v != nil && *v != 0 && *v < cluster.MinRetentionBytes {
		return outside(fieldBytes, *v, fmt.Sprintf("0 (no bound) or at least %d", cluster.MinRetentionBytes))
	}
	if v := p.MaxMessageBytes; v != nil && (*v < cluster.MinMessageBytes || *v > cluster.MaxMessageBytes) {
		return outside(fieldMessage, *v, fmt.Sprintf("%d to %d", cluster.MinMessageBytes, cluster.MaxMessageBytes))
	}
	if v := p.Durability; v != nil && *v != cluster.Fsync && *v != cluster.Replicated {
		return outside(fieldDurability, fmt.Sprintf("%q", clip(string(*v))), fmt.Sprintf("%q or %q", cluster.Fsync, cluster.Replicated))
	}
	if v := p.IdempotencyWindow; v != nil && (*v <= 0 || *v > cluster.MaxIdempotencyWindow) {
		return outside(fieldIdempotency, short(*v), fmt.Sprintf("more than 0 and at most %s", short(cluster.MaxIdempotencyWindow)))
	}
	return nil
}

// checkTogether checks what settings mean for one another and for the cluster.
func checkTogether(s cluster.Settings, brokers int) *cluster.Refusal {
	if s.Replicas > brokers {
		return outside(fieldReplicas, s.Replicas, upTo(brokers)+", the number of brokers")
	}
	if s.MinInsync > s.Replicas {
		return outside(fieldMinInsync, s.MinInsync, upTo(s.Replicas)+", the number of replicas")
	}
	return nil
}

// defaults fills in what a new topic was not given.
func defaults(p *cluster.SettingsPatch, brokers int) cluster.Settings {
	s := cluster.Settings{
		Replicas:          min(3, brokers),
		RetentionAge:      cluster.DefaultRetentionAge,
		MaxMessageBytes:   cluster.DefaultMessageBytes,
		Durability:        cluster.Fsync,
		IdempotencyWindow: cluster.DefaultIdempotencyWindow,
	}
	if p.Replicas != nil {
		s.Replicas = *p.Replicas
	}
	s.MinInsync = max(1, s.Replicas-1)
	return patched(s, p)
}

// patched puts the given settings over those there are.
func patched(s cluster.Settings, p *cluster.SettingsPatch) cluster.Settings {
	set(&s.Replicas, p.Replicas)
	set(&s.MinInsync, p.MinInsync)
	set(&s.RetentionAge, p.RetentionAge)
	set(&s.RetentionBytes, p.RetentionBytes)
	set(&s.MaxMessageBytes, p.MaxMessageBytes)
	set(&s.Durability, p.Durability)
	set(&s.Unclean, p.Unclean)
	set(&s.IdempotencyWindow, p.IdempotencyWindow)
	return s
}

func set[T any](into *T, given *T) {
	if given != nil {
		*into = *given
	}
}

// differences compares the settings that were given with those of a topic that
// exists; the rest is not looked at.
func differences(t *cluster.Topic, spec *cluster.TopicSpec) (names, texts []string) {
	differ := func(name string, given, is any) {
		names = append(names, name)
		texts = append(texts, fmt.Sprintf("%s is %v, not %v", name, is, given))
	}
	if v := spec.Partitions; v != nil && *v != openPartitions(t) {
		differ(fieldPartitions, *v, openPartitions(t))
	}
	s := t.Settings
	if v := spec.Replicas; v != nil && *v != s.Replicas {
		differ(fieldReplicas, *v, s.Replicas)
	}
	if v := spec.MinInsync; v != nil && *v != s.MinInsync {
		differ(fieldMinInsync, *v, s.MinInsync)
	}
	if v := spec.RetentionAge; v != nil && *v != s.RetentionAge {
		differ(fieldAge, short(*v), short(s.RetentionAge))
	}
	if v := spec.RetentionBytes; v != nil && *v != s.RetentionBytes {
		differ(fieldBytes, *v, s.RetentionBytes)
	}
	if v := spec.MaxMessageBytes; v != nil && *v != s.MaxMessageBytes {
		differ(fieldMessage, *v, s.MaxMessageBytes)
	}
	if v := spec.Durability; v != nil && *v != s.Durability {
		differ(fieldDurability, *v, s.Durability)
	}
	if v := spec.Unclean; v != nil && *v != s.Unclean {
		differ(fieldUnclean, *v, s.Unclean)
	}
	if v := spec.IdempotencyWindow; v != nil && *v != s.IdempotencyWindow {
		differ(fieldIdempotency, short(*v), short(s.IdempotencyWindow))
	}
	return names, texts
}

func upTo(n int) string {
	if n == 1 {
		return "1"
	}
	return fmt.Sprintf("1 to %d", n)
}

// short writes a duration as people do: 168h, not 168h0m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}
