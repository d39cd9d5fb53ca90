package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
)

// Ready asks whether the server can serve. A server that cannot answers with a
// problem or with its reasons; both come back as not ready and one line of why. One that
// can and has warnings gives those.
func (c *Client) Ready(ctx context.Context) (ready bool, why string, err error) {
	resp, err := c.do(ctx, request{method: http.MethodGet, path: "/readyz", header: http.Header{"Accept": {"application/json"}}})
	var p *Problem
	if errors.As(err, &p) {
		return false, p.Error(), nil
	} else if err != nil {
		return false, "", err
	}
	defer resp.Body.Close()
	var answer struct {
		Warnings []string `json:"warnings"`
	}
	_ = json.NewDecoder(io.LimitReader(resp.Body, maxProblem)).Decode(&answer) // its status says all that counts
	return true, strings.Join(answer.Warnings, "; "), nil
}
