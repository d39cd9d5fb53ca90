package client

import (
	"context"
	"encoding/json"
)

// Alert is something that needs somebody, or did.
type Alert struct {
	Alert  string `json:"alert"`
	State  string `json:"state"`
	Since  string `json:"since"`
	Until  string `json:"until"` // empty: it still does
	Detail string `json:"detail"`
	Advice string `json:"advice"`

	Raw json.RawMessage `json:"-"`
}

// UnmarshalJSON keeps the server's own words beside the fields.
func (a *Alert) UnmarshalJSON(b []byte) error {
	type plain Alert
	return withRaw(b, (*plain)(a), &a.Raw)
}

// Alerts lists those that fire, and those that resolved lately.
func (c *Client) Alerts(ctx context.Context) ([]Alert, error) {
	return listed[Alert](ctx, c, "/alerts", "alerts")
}
