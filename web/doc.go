// Package web is the page that a node serves at "/": it lists topics, tails
// one over SSE and publishes to it. The files are plain HTML, CSS and
// JavaScript, embedded as they stand, with no build step and nothing from
// elsewhere; the page's policy lets it load nothing but them.
package web
