package main

import (
	"github.com/spf13/cobra"

	"tidewire/internal/ident"
)

// oneTopic is the argument check of a command about one topic.
func oneTopic(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("%s takes one TOPIC, not %d arguments: %s", cmd.CommandPath(), len(args), cmd.UseLine())
	}
	return topicFirst(cmd, args)
}

// topicFirst is that of a command about a topic and more.
func topicFirst(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usagef("%s needs a TOPIC: %s", cmd.CommandPath(), cmd.UseLine())
	}
	if args[0] == "" {
		return usagef("the TOPIC is empty: %s", cmd.UseLine())
	}
	return nil
}

// topicAndGroup is that of a command about a group of a topic.
func topicAndGroup(cmd *cobra.Command, args []string) error {
	if err := topicFirst(cmd, args); err != nil {
		return err
	}
	if len(args) != 2 || args[1] == "" {
		return usagef("%s needs a TOPIC and a GROUP: %s", cmd.CommandPath(), cmd.UseLine())
	}
	return checkGroup(args[1])
}

// checkGroup is the check of a group's name. One that no group can have is found here:
// some of them are addresses of other calls, whose answer would tell nothing.
func checkGroup(name string) error {
	if err := ident.CheckGroupName(name); err != nil {
		return usage(err)
	}
	return nil
}

// noArguments is that of a command that takes flags alone.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no argument, and %q is one: %s", cmd.CommandPath(), args[0], cmd.UseLine())
	}
	return nil
}

// oneNode is that of a command about one node or all of them.
func oneNode(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usagef("%s takes one NODE, not %d: %s", cmd.CommandPath(), len(args), cmd.UseLine())
	}
	return nil
}

// thisNode is that of a command about one node.
func thisNode(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("%s takes one NODE, not %d arguments: %s", cmd.CommandPath(), len(args), cmd.UseLine())
	}
	if args[0] == "" {
		return usagef("the NODE is empty: %s", cmd.UseLine())
	}
	return nil
}

// exclude lets only one of two flags be given.
func exclude(cmd *cobra.Command, one, other string) {
	before := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed(one) && cmd.Flags().Changed(other) {
			return usagef("--%s and --%s exclude one another: give one of them", one, other)
		}
		if before == nil {
			return nil
		}
		return before(cmd, args)
	}
}

// lacking says what commands stand for that other versions have: their nearest
// name would lead astray.
func lacking(command string) (what string, ok bool) {
	what, ok = map[string]string{
		"tidewire topic repartition": "no repartition",
	}[command]
	return what, ok
}
