// Package stream is subscriptions as server-sent events: each on the goroutine of
// its request, for as long as its client stays.
package stream
