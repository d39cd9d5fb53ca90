// Package web is the dashboard that a node serves at "/". Its source is in src: TypeScript
// on the project's own SDK and the public HTTP API alone. What the source makes is in
// assets, committed and embedded as it stands, so that Go alone builds the whole binary;
// make dashboard writes it anew, and make web-test fails where it is not what the source
// makes. The policy lets a browser load nothing but these files and make markup of no text.
package web
