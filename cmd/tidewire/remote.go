package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"tidewire/cmd/tidewire/internal/client"
)

const (
	defaultServer  = "http://127.0.0.1:8080"
	serverVariable = "TIDEWIRE_SERVER"
)

// remote is what the commands that call a server have in common.
type remote struct {
	process
	server string
	token  string
	output string
}

// addRemote gives a command the flags --server, --token and --output.
func addRemote(cmd *cobra.Command, p process) *remote {
	r := &remote{process: p}
	r.addServer(cmd)
	cmd.Flags().StringVar(&r.token, "token", "", "`token` to show the node; better in "+tokenVariable+": other users of the machine see flags")
	r.addOutput(cmd)
	return r
}

func (r *remote) addServer(cmd *cobra.Command) {
	cmd.Flags().StringVar(&r.server, "server", "", "`URL` of a node; "+serverVariable+" or "+defaultServer+" if not given")
}

func (r *remote) addOutput(cmd *cobra.Command) {
	cmd.Flags().StringVar(&r.output, "output", "", "`format`: table or json (one object a line); table on a terminal, json in a pipe")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp))
}

// open checks the common flags and makes the client.
func (r *remote) open() (*client.Client, error) {
	if err := r.checkOutput(); err != nil {
		return nil, err
	}
	return r.client(r.address())
}

// openAll is open where several servers may be named, with commas between.
func (r *remote) openAll() ([]*client.Client, error) {
	if err := r.checkOutput(); err != nil {
		return nil, err
	}
	var all []*client.Client
	for server := range strings.SplitSeq(r.address(), ",") {
		c, err := r.client(strings.TrimSpace(server))
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// openWithoutToken makes a client for calls that need none.
func (r *remote) openWithoutToken() (*client.Client, error) {
	if err := r.checkOutput(); err != nil {
		return nil, err
	}
	return anonymous(r.address())
}

// address is what was given for a server.
func (r *remote) address() string { return cmp.Or(r.server, r.variable(serverVariable), defaultServer) }

// client makes a client of a server that shows the token.
func (r *remote) client(server string) (*client.Client, error) {
	c, err := anonymous(server)
	if err != nil {
		return nil, err
	}
	if err := c.Bear(cmp.Or(r.token, r.variable(tokenVariable))); err != nil {
		return nil, usagef("--token: %w", err)
	}
	return c, nil
}

// anonymous makes a client that says nothing of who calls.
func anonymous(server string) (*client.Client, error) {
	if host, port, err := net.SplitHostPort(server); err == nil && host != "" && port != "" && strings.Trim(port, "0123456789") == "" {
		server = "http://" + server // localhost:8080 can mean nothing else
	}
	c, err := client.New(server)
	if err != nil {
		return nil, usagef("--server: %w", err)
	}
	return c, nil
}

func (r *remote) checkOutput() error {
	switch r.output {
	case "", "table", "json":
		return nil
	}
	return usagef("--output: %q is neither table nor json", r.output)
}

// shows is what a command runs that asks a node for something and shows that.
func shows[T any](r *remote, ask func(ctx context.Context, c *client.Client, args []string) (T, error), show func(T) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := r.open()
		if err != nil {
			return err
		}
		what, err := ask(cmd.Context(), c, args)
		if err != nil {
			return err
		}
		return show(what)
	}
}

// table reports whether a person reads the output.
func (r *remote) table() bool {
	if r.output != "" {
		return r.output == "table"
	}
	return terminal(r.out)
}

// line writes one JSON object on a line of its own.
func (r *remote) line(v any) error {
	raw, ok := v.(json.RawMessage)
	if !ok {
		var err error
		if raw, err = json.Marshal(v); err != nil {
			return fmt.Errorf("encode the output: %w", err)
		}
	}
	_, err := r.out.Write(append(raw[:len(raw):len(raw)], '\n'))
	return err
}

// list writes things one after the other: the server's own words on a line each, or a row of
// a table.
func list[T any](r *remote, head []string, all []T, raw func(T) json.RawMessage, row func(T) []string) error {
	if r.table() {
		table := [][]string{head}
		for _, one := range all {
			table = append(table, row(one))
		}
		return rows(r.out, table)
	}
	for _, one := range all {
		if err := r.line(raw(one)); err != nil {
			return err
		}
	}
	return nil
}

// rows writes a table; the first row is its head.
func rows(w io.Writer, all [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range all {
		for i, cell := range row {
			if i > 0 {
				fmt.Fprint(t, "\t")
			}
			fmt.Fprint(t, cmp.Or(visible(cell), "-"))
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}
