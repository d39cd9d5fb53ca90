package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"tidewire/cmd/tidewire/internal/client"
	"tidewire/cmd/tidewire/internal/requester"
	"tidewire/internal/fault"
	"tidewire/internal/wire"
)

// requestFlags are what request is told.
type requestFlags struct {
	key, contentType, correlation string
	headers                       []string
	timeout                       time.Duration
	keySet                        bool
}

func newRequest(p process) *cobra.Command {
	var f requestFlags
	cmd := &cobra.Command{
		Use:   "request TOPIC [VALUE|-]",
		Short: "Ask the members of a topic's groups, and print the reply",
		Long: `Request publishes a request to a topic and prints the reply that a member of one of
the topic's groups gives. Without a VALUE, or with -, it sends all of the standard
input. A value that is JSON is sent as JSON, other text as text, anything else as plain
bytes; --content-type says it.

The reply's body goes to the standard output as it is; with --output json there is one
object that has its content type and headers too. A responder that failed makes the exit
code 4, with its status and body on the standard error.

A request whose node dies is repeated at another one with the same correlation id: it is
still one request, and nobody works on it twice for that. The other nodes are the further
ones of --server (URLs with commas between), or, where it names one alone, those the node
itself tells of. A script that gives a --correlation-id can ask again for the reply of a
request of which it only knows that it was sent.`,
		Example: `  tidewire request prices '{"item":"tea"}'
  tidewire request thumbnails - --content-type image/png --timeout 30s < in.png > out.png
  tidewire request orders "$order" --key ann --correlation-id "$order_id"`,
		Args: topicAndValue,
	}
	r := addRemote(cmd, p)
	fs := cmd.Flags()
	fs.Lookup("server").Usage = "`URL` of a node, or of several with commas between; " + serverVariable + " or " + defaultServer + " if not given"
	fs.Lookup("output").Usage = "`format`: table (the reply's body as it is), or json (one object)"
	fs.StringVar(&f.key, "key", "", "the request's key")
	fs.StringArrayVar(&f.headers, "header", nil, "a `name=value` for the request; may be repeated")
	fs.StringVar(&f.contentType, "content-type", "", "the content `type` of the value; by its looks if not given")
	fs.DurationVar(&f.timeout, "timeout", 5*time.Second, "how long the reply may take")
	fs.StringVar(&f.correlation, "correlation-id", "", "the request's `id`: a repeat with the same one is the same request; drawn if not given")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f.keySet = fs.Changed("key")
		q, err := f.request(args[0])
		if err != nil {
			return usage(err)
		}
		if q.Value, err = valueArgument(r, args[1:]); err != nil {
			return err
		}
		if q.ContentType == "" {
			q.ContentType = wire.GuessContentType(q.Value)
		}
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		return ask(ctx, r, q)
	}
	return cmd
}

// topicAndValue is the argument check of a command about a topic and what it is told.
func topicAndValue(cmd *cobra.Command, args []string) error {
	if len(args) > 2 {
		return usagef("%s takes one VALUE, not %d; put it in quotes: %s", cmd.CommandPath(), len(args)-1, cmd.UseLine())
	}
	return topicFirst(cmd, args)
}

// request is the request without its value.
func (f requestFlags) request(topic string) (client.Request, error) {
	q := client.Request{Topic: topic, Key: f.key, ContentType: f.contentType, Timeout: f.timeout, Correlation: cmp.Or(f.correlation, uuid.NewString())}
	var faults []error
	if f.timeout < time.Millisecond {
		faults = append(faults, fmt.Errorf("--timeout: %s is less than 1ms", f.timeout))
	}
	if f.keySet {
		if _, err := wire.Key(f.key); err != nil {
			faults = append(faults, fmt.Errorf("--key: %w", err))
		}
	}
	if f.contentType != "" {
		if err := wire.CheckContentType(f.contentType); err != nil {
			faults = append(faults, fmt.Errorf("--content-type: %w", err))
		}
	}
	var err error
	q.Headers, err = headerFields(f.headers)
	return q, errors.Join(append(faults, err)...)
}

// maxInputBytes bounds what is read as one value: no topic takes one this long.
const maxInputBytes = maxLineBytes

// valueArgument is the value on the command line, or the standard input.
func valueArgument(r *remote, args []string) ([]byte, error) {
	if len(args) > 0 && args[0] != "-" {
		return []byte(args[0]), nil
	}
	value, err := io.ReadAll(io.LimitReader(r.in, maxInputBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read the value: %w", err)
	}
	if len(value) > maxInputBytes {
		return nil, fmt.Errorf("the value is longer than %d bytes", maxInputBytes)
	}
	return value, nil
}

func ask(ctx context.Context, r *remote, q client.Request) error {
	all, err := r.openAll()
	if err != nil {
		return err
	}
	servers := make([]requester.Server, len(all))
	for i, c := range all {
		servers[i] = c
	}
	reply, err := requester.Do(ctx, requester.Config{
		Request: q, Servers: servers,
		More: func(ctx context.Context) []requester.Server {
			if len(all) > 1 {
				return nil // those are meant
			}
			return r.others(ctx, all[0])
		},
		Note: func(format string, args ...any) { fmt.Fprintf(r.err, "tidewire: "+format+"\n", args...) },
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return &exitError{exitFailed, fmt.Errorf("interrupted: a responder may work on the request; to ask for its reply, repeat with --correlation-id %s", q.Correlation)}
	case err != nil:
		return unanswered(err, q)
	}
	if reply.Failed() {
		return &exitError{exitRefused, fmt.Errorf("a responder failed with status %d: %s", reply.Status, failureText(reply))}
	}
	return printReply(r, q, reply)
}

// others are the further nodes that a server tells of; none where it does not tell.
func (r *remote) others(ctx context.Context, c *client.Client) (all []requester.Server) {
	nodes, _, err := c.Nodes(ctx)
	if err != nil {
		return nil // it takes a right that who asks need not have
	}
	scheme, _, _ := strings.Cut(c.Server(), "://")
	for _, n := range nodes {
		if n.Addresses.HTTP == "" || n.State != "alive" {
			continue
		}
		if other, err := r.client(scheme + "://" + n.Addresses.HTTP); err == nil {
			all = append(all, other)
		}
	}
	return all
}

// unanswered says what to do about a request without a reply.
func unanswered(err error, q client.Request) error {
	var late *requester.Late
	var gone *client.Unreachable
	var problem *client.Problem
	switch {
	case errors.As(err, &late) && errors.As(late.Err, &gone):
		return err
	case errors.As(err, &late):
		return &exitError{exitFailed, fmt.Errorf("%w\nlook whether a responder is at work (tidewire group list %s), or give it longer (--timeout); it may have worked on the request: to ask for the same reply, repeat with --correlation-id %s",
			err, q.Topic, q.Correlation)}
	case errors.As(err, &problem) && problem.Code == fault.NoResponders.Code():
		return &exitError{exitFailed, fmt.Errorf("%w\nnothing was sent: start a responder (tidewire respond %s --exec CMD), then ask again", err, q.Topic)}
	}
	return err
}

// maxFailureText bounds what is said of a responder's failure.
const maxFailureText = 8 << 10

func failureText(reply client.Reply) string {
	if !wire.IsText(reply.ContentType) && !wire.IsJSON(reply.ContentType) {
		return fmt.Sprintf("(%d bytes of %s)", len(reply.Value), visible(reply.ContentType))
	}
	text := strings.TrimSpace(string(reply.Value))
	if len(text) > maxFailureText {
		text = text[:maxFailureText] + "…"
	}
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = visible(lines[i])
	}
	return strings.Join(lines, "\n")
}

// printReply prints a reply's body, or all of it as JSON.
func printReply(r *remote, q client.Request, reply client.Reply) error {
	if r.output == "json" {
		return r.line(replyJSON(q, reply))
	}
	value := reply.Value
	if terminal(r.out) && len(value) > 0 && value[len(value)-1] != '\n' {
		value = append(value, '\n')
	}
	if _, err := r.out.Write(value); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// replyJSON is a reply as one line of JSON.
func replyJSON(q client.Request, reply client.Reply) json.RawMessage {
	headers := wire.Begin(nil)
	for _, h := range reply.Headers {
		headers.Str(h.Name, h.Value)
	}
	out := wire.Begin(nil).Str("correlation_id", q.Correlation).Str("content_type", reply.ContentType).Raw("headers", headers.Close())
	contentType, value := reply.ContentType, reply.Value
	switch {
	case !wire.IsJSON(contentType):
	case wire.CheckJSON(value) == nil:
		value = wire.AppendCompact(nil, value)
	default:
		contentType = "" // it is called JSON, and is not
	}
	addValue(out, contentType, value)
	return out.Close()
}
