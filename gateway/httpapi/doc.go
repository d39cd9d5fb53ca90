// Package httpapi is the HTTP API: control of topics, producing, polling,
// streams of events, and what a person or a machine looks at to see how the
// node is. router.go has all of it on one screen, openapi.json describes it.
//
// The life of one request: the edge (edge.go) gives it its bounds (write
// deadline, security headers, origin check, a net under panics), the router
// finds the action, the action reads its parameters strictly (an unknown or
// repeated one is an error) and either answers or returns an error, and the one
// place that knows how turns that into a problem (package reply).
//
// Nothing here is durable and nothing here decides where a record goes: that is
// package publish on the way in and package deliver on the way out.
package httpapi
