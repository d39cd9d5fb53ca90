package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"tidewire/gateway/access"
	"tidewire/internal/boot"
)

const (
	tokenVariable    = "TIDEWIRE_TOKEN"
	keyVariable      = boot.EnvPrefix + "AUTH_KEY_FILE"
	issuerVariable   = boot.EnvPrefix + "AUTH_ISSUER"
	audienceVariable = boot.EnvPrefix + "AUTH_AUDIENCE"

	longestToken = 10 * 365 * 24 * time.Hour
)

// minting is what a token is to say, as flags.
type minting struct {
	keyFile, sub, issuer, audience string

	topics map[access.Right]*[]string
	admin  bool
	lasts  time.Duration
}

func newToken(p process) *cobra.Command {
	r := &remote{process: p}
	m := &minting{topics: map[access.Right]*[]string{}}
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Sign a token with a node's key, for development",
		Long: `Token signs a token with the secret that nodes verify with (auth_key_file), and prints it.
In production an identity provider does that.

A pattern names topics: * stands for any run of characters, {sub} for the token's subject.
Several are separated by commas. --admin gives every right. Who responds needs group and
reply; who asks, request.

The token is printed as it is, also in a pipe; --output json adds its end.`,
		Example: `  export TIDEWIRE_TOKEN=$(tidewire token --auth-key-file key --sub alice --publish 'orders.*' --subscribe '*')
  tidewire token --auth-key-file key --sub operator --admin --lasts 8h`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&m.keyFile, "auth-key-file", "", "`file` with the HS256 secret; "+keyVariable+" if not given")
	f.StringVar(&m.sub, "sub", "", "the subject: the `principal` that bears the token")
	for _, right := range []access.Right{access.Publish, access.Subscribe, access.Group, access.Request, access.Reply} {
		m.topics[right] = f.StringSlice(right.String(), nil, "`patterns` of topics for the right to "+right.String()+", separated by commas")
	}
	f.BoolVar(&m.admin, "admin", false, "every right: all topics, and what is about none")
	f.DurationVar(&m.lasts, "lasts", time.Hour, "`duration` until the token ends")
	f.StringVar(&m.issuer, "issuer", "", "the issuer; "+issuerVariable+" if not given")
	f.StringVar(&m.audience, "audience", "", "the audience; "+audienceVariable+" if not given")
	f.SortFlags = false
	_ = cmd.MarkFlagFilename("auth-key-file")
	r.addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := r.checkOutput(); err != nil {
			return err
		}
		token, until, err := m.sign(p, cmd.Flags().Changed)
		if err != nil {
			return err
		}
		if r.output == "json" {
			return r.line(map[string]any{"token": token, "expires": until.UTC().Format(time.RFC3339)})
		}
		_, err = fmt.Fprintln(r.out, token)
		return err
	}
	return cmd
}

// check finds what can only be a slip: a token that verifies and opens nothing.
func (m *minting) check(given func(flag string) bool) error {
	none := !m.admin
	for right := access.Publish; right <= access.Reply; right++ {
		name, patterns := right.String(), *m.topics[right]
		if given(name) && len(patterns) == 0 {
			return fmt.Errorf("--%s: is empty: it takes patterns of topics, separated by commas", name)
		}
		for _, text := range patterns {
			switch {
			case text == "":
				return fmt.Errorf("--%s: has an empty pattern: it takes patterns of topics, separated by commas", name)
			case strings.ContainsFunc(text, unicode.IsSpace):
				return fmt.Errorf("--%s: %q has a space, which no topic's name has; patterns are separated by commas", name, text)
			case m.sub == "" && strings.Contains(text, "{sub}"):
				return fmt.Errorf("--%s: %q names the token's subject: give it by --sub", name, text)
			}
			none = false
		}
	}
	if none {
		return errors.New("the token would give no right: name topics by --publish, --subscribe or another right, or give --admin")
	}
	return nil
}

func (m *minting) sign(p process, given func(flag string) bool) (token string, until time.Time, err error) {
	path := cmp.Or(m.keyFile, p.variable(keyVariable))
	if path == "" {
		return "", until, usagef("--auth-key-file is needed: the secret that the node has as auth_key_file")
	}
	if m.lasts < time.Second || m.lasts > longestToken {
		return "", until, usagef("--lasts: %s is not between 1s and %s", m.lasts, longestToken)
	}
	key, err := boot.ReadKey(path)
	if err != nil {
		return "", until, usagef("--auth-key-file: %w", err)
	}
	if err := m.check(given); err != nil {
		return "", until, usage(err)
	}
	if len(key) < boot.WeakKeyBytes {
		fmt.Fprintf(p.err, "tidewire: the secret in %s has %d bytes, so few that it can be guessed from a token: take %d or more, for example of openssl rand -hex 32\n", path, len(key), boot.WeakKeyBytes)
	}
	now := time.Now()
	c := access.Claims{
		Subject: m.sub, Issuer: cmp.Or(m.issuer, p.variable(issuerVariable)), Audience: cmp.Or(m.audience, p.variable(audienceVariable)),
		From: now, Until: now.Add(m.lasts).Truncate(time.Second), Topics: map[access.Right][]string{}, Admin: m.admin,
	}
	for right, patterns := range m.topics {
		c.Topics[right] = *patterns
	}
	if token, err = access.Mint(key, c); err != nil {
		return "", until, usage(err)
	}
	return token, c.Until, nil
}
