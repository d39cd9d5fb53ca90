// Natsserver is nats-server with the settings of the comparison, as a process of its
// own. It prints its addresses, and runs until it is told to stop.
package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "natsserver:", err)
		os.Exit(1)
	}
}

// readyTimeout bounds a start.
const readyTimeout = 20 * time.Second

func run(args []string) error {
	fs := flag.NewFlagSet("natsserver", flag.ContinueOnError)
	name := fs.String("name", "n1", "its name")
	store := fs.String("store", "", "JetStream's folder; none: core NATS alone")
	always := fs.Bool("sync-always", false, "fsync before an acknowledgement; otherwise every two minutes, which is NATS' default")
	cluster := fs.Int("cluster-port", 0, "the port of its routes; 0: it is alone")
	routes := fs.String("routes", "", "ports of the routes of all nodes, with commas between")
	if err := fs.Parse(args); err != nil {
		return err
	}
	opts := &server.Options{
		ServerName: *name, Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true,
		MaxConn: 100_000, MaxPayload: 8 << 20, JetStream: *store != "", StoreDir: *store, SyncAlways: *always,
		JetStreamMaxStore: 64 << 30, JetStreamMaxMemory: 1 << 30,
		Websocket: server.WebsocketOpts{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoTLS: true},
	}
	if *cluster > 0 {
		opts.Cluster = server.ClusterOpts{Name: "bench", Host: "127.0.0.1", Port: *cluster}
		for port := range strings.SplitSeq(*routes, ",") {
			u, err := url.Parse("nats-route://127.0.0.1:" + port)
			if err != nil {
				return err
			}
			opts.Routes = append(opts.Routes, u)
		}
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	s.Start()
	defer s.WaitForShutdown()
	defer s.Shutdown()
	if !s.ReadyForConnections(readyTimeout) {
		return errors.New("it does not take connections")
	}
	web, err := url.Parse(s.WebsocketURL())
	if err != nil {
		return err
	}
	fmt.Printf("listening client=%s\n", local(s.Addr().(*net.TCPAddr).Port))
	fmt.Printf("listening ws=%s\n", web.Host)
	fmt.Println("ready in time")
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR1)
	for (<-told) == syscall.SIGUSR1 { // memory is about to be looked at
		debug.FreeOSMemory()
	}
	return nil
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
