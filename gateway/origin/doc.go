// Package origin judges where a browser's request comes from: it is the one
// place that says which web pages may call a node. HTTP and WebSocket ask it
// alike.
//
// It promises that no page calls the node under a name that the node is not
// known by. A browser says only that a page and its request have the same name;
// whoever owns a name can let it point at any address, 127.0.0.1 too. It does not
// look at requests without an Origin, which come from no page, or are the reads
// of one that its browser thinks the node's own; but for reads that do more, which a page
// may embed.
package origin
