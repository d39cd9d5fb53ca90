package run

import (
	"net"
	"strings"
)

// Notify tells systemd a state ("READY=1", "STOPPING=1") at the socket that
// NOTIFY_SOCKET names. Without one it does nothing.
func Notify(socket, state string) error {
	if socket == "" {
		return nil
	}
	if strings.HasPrefix(socket, "@") {
		socket = "\x00" + socket[1:] // the abstract name space
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write([]byte(state))
	return err
}
