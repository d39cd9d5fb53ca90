package client

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// The headers of a request.
const (
	ReplyTo       = "Tidewire-Reply-To"
	CorrelationID = "Tidewire-Correlation-Id"
	DeadlineOf    = "Tidewire-Deadline"
)

// Ask sends a request and waits for its reply; correlation may be "". What is no reply of a
// responder is a *Refused, or an error that leaves open what became of it.
func (a *API) Ask(ctx context.Context, topic, correlation, value string, timeout time.Duration, headers ...string) (Answer, error) {
	if correlation != "" {
		headers = append(headers, CorrelationID, correlation)
	}
	path := "/requests/" + topic + "?timeout=" + timeout.String()
	ans, err := a.Do(ctx, http.MethodPost, path, "application/json", value, headers...)
	if err != nil || ans.Status < 300 || ans.Header.Get("Tidewire-Status") != "" {
		return ans, err
	}
	return ans, refusal("POST "+path, ans)
}

// Reply answers the request of an inbox; status 0 is a success.
func (a *API) Reply(ctx context.Context, inbox, value string, status int, headers ...string) error {
	if status != 0 {
		headers = append(headers, "Tidewire-Status", strconv.Itoa(status))
	}
	ans, err := a.Do(ctx, http.MethodPost, "/replies/"+inbox, "application/json", value, headers...)
	if err != nil {
		return err
	}
	if ans.Status >= 300 {
		return refusal("POST /replies/", ans)
	}
	if ans.Status != http.StatusAccepted {
		return fmt.Errorf("a reply is answered %d", ans.Status)
	}
	return nil
}

func refusal(call string, ans Answer) error {
	p, err := ans.Problem()
	if err != nil {
		return err
	}
	return &Refused{call, p}
}

// Inbox is where the reply to a message goes; "": it is no request.
func (m *Message) Inbox() string { return m.Headers[ReplyTo] }
