// Package floor is what a figure is read against: the least that a part of the
// way costs on this machine at this moment. A WebSocket that only echoes, an
// HTTP server that only takes a body, and a disk that is only synced. Two of
// them are servers, which run as processes of their own, as what they stand
// beside does.
package floor
