package httpapi

import (
	"log/slog"
	"net/http"
	"time"
)

const (
	// headerTime is how long a client may take over the head of a request.
	headerTime = 10 * time.Second
	// idleTime is how long a connection may wait for its next request.
	idleTime = 2 * time.Minute
	// headerBytes bounds the head of a request: record headers (16 KiB), a key
	// and a cursor (4 KiB), with room.
	headerBytes = 64 << 10
	// streamsPerConnection bounds the requests of one HTTP/2 connection: as many
	// as browsers use, and no way around the bounds on connections.
	streamsPerConnection = 100
)

// NewServer makes the server of an API: HTTP/1.1 and HTTP/2 in clear text. It
// has no timeout for a whole request or answer, for some last for hours; each
// read of a body and each write has its own (see sender and response); its
// listener is to be Patient.
//
// To drain: API.Drain and the drain of the streams first, then Server.Shutdown,
// which waits for requests under way, then Server.Close at the deadline.
func NewServer(a *API) *http.Server { return newServer(a, a.log) }

func newServer(h http.Handler, log *slog.Logger) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           h,
		Protocols:         &protocols,
		ReadHeaderTimeout: headerTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    headerBytes,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: streamsPerConnection,
			SendPingTimeout:      30 * time.Second, // finds clients that vanished
			PingTimeout:          15 * time.Second,
			WriteByteTimeout:     writeTimeout,
		},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}
