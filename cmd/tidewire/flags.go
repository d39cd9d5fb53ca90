package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tidewire/internal/boot"
)

// flagError says in plain words what is wrong with a flag.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	var lacks *pflag.ValueRequiredError
	switch {
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		return usagef("%s has no flag -%s; %s --help lists them", cmd.CommandPath(), unknown.GetSpecifiedName(), cmd.CommandPath())
	case errors.As(err, &unknown):
		return usagef("%s has no flag --%s%s", cmd.CommandPath(), unknown.GetSpecifiedName(), instead(cmd, unknown.GetSpecifiedName()))
	case errors.As(err, &invalid):
		return usagef("--%s: %q is %s", invalid.GetFlag().Name, invalid.GetValue(), misfit(invalid.GetFlag().Value.Type()))
	case errors.As(err, &lacks):
		return usagef("--%s needs a value", lacks.GetFlag().Name)
	}
	return usage(err)
}

// misfit says that a value is not of a flag's kind.
func misfit(kind string) string {
	switch kind {
	case "duration":
		return "no " + boot.DurationForm
	case "float64":
		return "no number"
	case "bool":
		return "neither true nor false"
	}
	return "no whole number"
}

// instead says what to do instead of giving a flag that there is not.
func instead(cmd *cobra.Command, name string) string {
	if what, ok := lackingFlag(cmd.CommandPath(), name); ok {
		return ": " + what
	}
	if name == "json" && cmd.Flags().Lookup("output") != nil {
		return "; give --output json"
	}
	var known []string
	// Hidden ones too: they say why this version refuses them.
	cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	return boot.Nearest(name, known, "--", cmd.CommandPath()+" --help lists them")
}

// lackingFlag says what flags stand for that later versions have: their nearest
// name would lead astray.
func lackingFlag(command, name string) (what string, ok bool) {
	switch command + " --" + name {
	case "tidewire topic create --compaction", "tidewire topic alter --compaction":
		return "this version has no compaction; it comes with a later one", true
	case "tidewire topic alter --partitions":
		return "this version has no repartition; it comes with a later one. Create a topic with as many as are needed", true
	}
	if command == "tidewire serve" {
		return boot.Lacking(strings.ReplaceAll(name, "-", "_"))
	}
	return "", false
}

// hideDefault keeps a flag's default out of the help: it only stands for "not
// given".
func hideDefault(fs *pflag.FlagSet, names ...string) {
	for _, name := range names {
		f := fs.Lookup(name)
		switch f.Value.Type() {
		case "string":
			f.DefValue = ""
		case "bool":
			f.DefValue = "false"
		default:
			f.DefValue = "0"
		}
	}
}
