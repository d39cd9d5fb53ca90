// Centrifuge is a server of the library that Centrifugo is built on, with the settings
// of the comparison: the memory engine, history, positioning and recovery on, JSON over
// WebSocket. It prints its address, and runs until it is told to stop.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/centrifugal/centrifuge"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "centrifuge:", err)
		os.Exit(1)
	}
}

const (
	// historyMessages and historyTime are what a channel keeps for those that come back.
	historyMessages = 1000
	historyTime     = 5 * time.Minute
	stopTimeout     = 5 * time.Second
)

func run(args []string) error {
	fs := flag.NewFlagSet("centrifuge", flag.ContinueOnError)
	address := fs.String("address", "127.0.0.1:0", "where it listens")
	if err := fs.Parse(args); err != nil {
		return err
	}
	node, err := centrifuge.New(centrifuge.Config{Name: "bench"})
	if err != nil {
		return err
	}
	node.OnConnecting(func(context.Context, centrifuge.ConnectEvent) (centrifuge.ConnectReply, error) {
		return centrifuge.ConnectReply{Credentials: &centrifuge.Credentials{}}, nil
	})
	node.OnConnect(func(c *centrifuge.Client) {
		c.OnSubscribe(func(_ centrifuge.SubscribeEvent, done centrifuge.SubscribeCallback) {
			done(centrifuge.SubscribeReply{Options: centrifuge.SubscribeOptions{EnableRecovery: true, EnablePositioning: true}}, nil)
		})
		c.OnPublish(func(_ centrifuge.PublishEvent, done centrifuge.PublishCallback) {
			done(centrifuge.PublishReply{Options: centrifuge.PublishOptions{HistorySize: historyMessages, HistoryTTL: historyTime}}, nil)
		})
	})
	if err := node.Run(); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/connection/websocket", centrifuge.NewWebsocketHandler(node, centrifuge.WebsocketConfig{UseWriteBufferPool: true}))
	l, err := net.Listen("tcp", *address)
	if err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 30 * time.Second}
	served := make(chan error, 1)
	var serving sync.WaitGroup
	serving.Go(func() { served <- s.Serve(l) })
	fmt.Printf("listening ws=%s\nready in time\n", l.Addr())
	look := make(chan os.Signal, 1)
	signal.Notify(look, syscall.SIGUSR1)
	for ctx.Err() == nil {
		select {
		case err := <-served:
			return err
		case <-look: // memory is about to be looked at
			debug.FreeOSMemory()
		case <-ctx.Done():
		}
	}
	end, stop := context.WithTimeout(context.Background(), stopTimeout)
	defer stop()
	_ = node.Shutdown(end) // it is over either way
	_ = s.Close()
	serving.Wait()
	return nil
}
