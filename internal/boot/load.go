package boot

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
)

// Source is where settings come from. The zero value of a field is nothing
// given there.
type Source struct {
	Flags    *pflag.FlagSet // with AddFlags applied, and parsed
	Environ  []string       // as os.Environ
	Hostname string         // the default name
}

// AddFlags defines the flag of every setting.
func AddFlags(fs *pflag.FlagSet) {
	for _, s := range Settings() {
		fs.Var(&flagValue{text: s.Default, kind: cmp.Or(s.Value, "bool")}, s.Flag(), s.Help)
		if s.Value == "" {
			fs.Lookup(s.Flag()).NoOptDefVal = "true"
		}
	}
}

// flagValue keeps a flag's text; Load reads it, so that a bad value is reported
// in the same words wherever it was given.
type flagValue struct{ text, kind string }

func (v *flagValue) String() string     { return v.text }
func (v *flagValue) Set(t string) error { v.text = t; return nil }
func (v *flagValue) Type() string       { return v.kind }

// layer is one source's settings as text.
type layer struct {
	name   string
	values *koanf.Koanf
	// spelling gives a setting's name as that source spells it.
	spelling func(Setting) string
}

// Load reads, merges and checks the settings. The error joins every fault.
func Load(src Source) (Config, error) {
	settings := Settings()
	var faults []error

	layers := []layer{defaults(settings)}
	flags := flagLayer(settings, src.Flags)
	variables, unknown := variableLayer(settings, src.Environ)
	faults = append(faults, unknown...)
	if path := configPath(flags, variables); path != "" {
		l, fs := fileLayer(settings, path)
		faults = append(faults, fs...)
		layers = append(layers, l)
	}
	layers = append(layers, variables, flags)

	merged, origin := koanf.New("."), map[string]layer{}
	for _, l := range layers {
		if err := merged.Merge(l.values); err != nil {
			return Config{}, fmt.Errorf("merge settings of %s: %w", l.name, err)
		}
		for _, key := range l.values.Keys() {
			origin[key] = l
		}
	}

	var c Config
	for _, s := range settings {
		text, from := merged.String(s.Name), origin[s.Name]
		if s.set != nil {
			if err := s.set(&c, text); err != nil {
				faults = append(faults, fmt.Errorf("%s: %w", from.spelling(s), err))
			}
		}
		c.effective = append(c.effective, effective(s, text, from.name))
	}
	if len(faults) == 0 {
		c = c.withDefaults(src.Hostname)
		faults = c.check()
	}
	if err := errors.Join(faults...); err != nil {
		return Config{}, err
	}
	return c, nil
}

func effective(s Setting, text, from string) Entry {
	if s.Secret && text != "" {
		text = "********"
	}
	if from == "" {
		from = "default"
	}
	return Entry{Name: s.Name, Value: text, Source: from}
}

func newLayer(name string, values map[string]any, spelling func(Setting) string) layer {
	k := koanf.New(".")
	// A confmap is a map already: loading it cannot fail.
	_ = k.Load(confmap.Provider(values, ""), nil)
	return layer{name: name, values: k, spelling: spelling}
}

// defaults has an entry for every setting that has a reader, so that each of
// them is always set by the same code.
func defaults(settings []Setting) layer {
	values := map[string]any{}
	for _, s := range settings {
		if s.set != nil {
			values[s.Name] = s.Default
		}
	}
	return newLayer("default", values, func(s Setting) string { return s.Name })
}

func flagLayer(settings []Setting, fs *pflag.FlagSet) layer {
	values := map[string]any{}
	if fs != nil {
		for _, s := range settings {
			if f := fs.Lookup(s.Flag()); f != nil && f.Changed {
				values[s.Name] = f.Value.String()
			}
		}
	}
	return newLayer("flag", values, func(s Setting) string { return "--" + s.Flag() })
}

// variableLayer reads TIDEWIRE_* variables. An empty one counts as not given,
// as compose files and charts write it.
func variableLayer(settings []Setting, environ []string) (layer, []error) {
	var faults []error
	var known []string // without the prefix
	for _, name := range clientVariables {
		known = append(known, strings.TrimPrefix(name, EnvPrefix))
	}
	for _, s := range settings {
		known = append(known, strings.TrimPrefix(s.Variable(), EnvPrefix))
	}
	k := koanf.New(".")
	err := k.Load(env.Provider("", env.Opt{
		Prefix:      EnvPrefix,
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(name, value string) (string, any) {
			switch {
			case slices.Contains(clientVariables[:], name):
				return "", nil
			case !slices.Contains(known, strings.TrimPrefix(name, EnvPrefix)):
				faults = append(faults, unknownVariable(name, known))
				return "", nil
			case value == "":
				return "", nil
			}
			return strings.ToLower(strings.TrimPrefix(name, EnvPrefix)), value
		},
	}), nil)
	if err != nil {
		faults = append(faults, fmt.Errorf("read the environment: %w", err))
	}
	return layer{name: "variable", values: k, spelling: Setting.Variable}, faults
}

func unknownVariable(name string, known []string) error {
	hint := ""
	// Kubernetes gives pods a variable for each service of the namespace; a
	// service called tidewire makes names of ours.
	if strings.Contains(name, "_SERVICE_") || strings.HasPrefix(name, EnvPrefix+"PORT") {
		hint = "; if Kubernetes made it for a service, set enableServiceLinks: false"
	}
	return fmt.Errorf("%s: %s%s", name, noSuch(strings.TrimPrefix(name, EnvPrefix), known, EnvPrefix), hint)
}

func configPath(flags, variables layer) string {
	if flags.values.Exists("config") {
		return flags.values.String("config")
	}
	return variables.values.String("config")
}

func fileLayer(settings []Setting, path string) (layer, []error) {
	spelling := func(s Setting) string { return path + ": " + s.Name }
	k := koanf.New(".")
	if err := k.Load(file.Provider(path), yaml.Parser()); err != nil {
		var missing *os.PathError
		if errors.As(err, &missing) {
			return newLayer("file", nil, spelling), []error{fmt.Errorf("config: %w", err)}
		}
		return newLayer("file", nil, spelling), []error{fmt.Errorf("%s: not a YAML file of settings: %w", path, err)}
	}
	var faults []error
	var known []string
	for _, s := range settings {
		if s.Name != "config" { // a file names no other file
			known = append(known, s.Name)
		}
	}
	values := map[string]any{}
	for _, key := range k.Keys() {
		if !slices.Contains(known, key) {
			faults = append(faults, fmt.Errorf("%s: %s: %s", path, key, noSuch(key, known, "")))
			continue
		}
		text, ok := scalar(k.Get(key))
		if !ok {
			faults = append(faults, fmt.Errorf("%s: %s: needs one value, or a list of them", path, key))
			continue
		}
		values[key] = text
	}
	return newLayer("file", values, spelling), faults
}

// scalar writes a YAML value as a flag would have it; a list joined by commas.
func scalar(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case bool, int, int64, uint64, float64:
		return fmt.Sprint(v), true
	case []any:
		parts := make([]string, 0, len(v))
		for _, e := range v {
			if _, nested := e.([]any); nested {
				return "", false
			}
			text, ok := scalar(e)
			if !ok {
				return "", false
			}
			parts = append(parts, text)
		}
		return strings.Join(parts, ","), true
	}
	return "", false
}
