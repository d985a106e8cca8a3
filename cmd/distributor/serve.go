package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/time/rate"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/internal/configfile"
	"github.com/queuepump/queuepump/internal/serve"
	"github.com/queuepump/queuepump/internal/service"
	"github.com/queuepump/queuepump/pump/distributor"
)

// serveFlags are the flags of `distributor serve`.
type serveFlags struct {
	runFlags
	tokens          string
	tlsCert, tlsKey string
	sender          distributor.SenderOptions
	http            serve.Options
}

func serveCommand() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Take tasks over HTTP and send them",
		Long: `Take tasks over HTTP, from programs in any language, and send them to the queues
of the workload. A post is answered when the accounts have acknowledged its
tasks: with 200 they are in queues for good.

  POST /v1/tasks   each line of the body is a task, a JSON value; with
                   Content-Type: application/json the body is one task
  GET /readyz      200 while the server takes tasks, for a balancer

With a header Idempotency-Key a post may be made again, also to another server
of the workload: with delivery: once its tasks are done once, for as long as
--keep-keys says. On the first signal a server takes no more, answers what it
has, seals its run and ends with status 0.`,
		Example: `  # for programs on this machine
  distributor serve --config pump.yaml --key city
  curl --data-binary @tasks.jsonl http://127.0.0.1:8080/v1/tasks

  # for others, with tokens and TLS
  distributor serve --config pump.yaml --listen :8443 --token-file /etc/queuepump/tokens \
      --tls-cert server.crt --tls-key server.key
  curl --data-binary @tasks.jsonl -H "Authorization: Bearer $TOKEN" \
      -H 'Idempotency-Key: orders-2026-11-27' https://pump.example:8443/v1/tasks`,
		Args: cli.NoArguments(nil),
		RunE: cli.Command(f.run),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	cli.ConfigFlag(cmd, &f.around.Config)
	cli.TakesHangup(cmd)
	flags.StringVar(&f.http.Listen, "listen", "127.0.0.1:8080",
		"where tasks are posted, `ADDR` as host:port, or unix: and a path")
	flags.StringVar(&f.tokens, "token-file", "",
		"the `FILE` with tokens of who may send, a line each; needed beyond loopback")
	flags.StringVar(&f.tlsCert, "tls-cert", "", "the `FILE` with the certificate, for HTTPS")
	flags.StringVar(&f.tlsKey, "tls-key", "", "the `FILE` with the key of --tls-cert")
	flags.StringVar(&f.http.Key, "key", "",
		"the `FIELD` that tasks are segmented by (default: tasks have no key)")
	flags.StringVar(&f.http.ID, "id", "", "the `FIELD` with your own name of the task")
	flags.DurationVar(&f.sender.KeepKeys, "keep-keys", 24*time.Hour,
		"how long an Idempotency-Key is kept, up to the retention; with 0s none is taken")
	flags.DurationVar(&f.sender.Linger, "linger", 10*time.Millisecond,
		"how long a task waits for others to share its message")
	cli.BlobAboveFlag(cmd, &f.sender.BlobAbove)
	flags.IntVar(&f.sender.Pack, "pack", 0, "the most tasks in a message (default: as many as fit)")
	flags.DurationVar(&f.http.Grace, "grace", 20*time.Second,
		"how long posts under way may take after a signal")
	flags.StringVar(&f.around.Admin, "admin", "",
		"where the admin port listens, `ADDR` as host:port, or off "+
			"(default: what the configuration says, or a free port of loopback)")
	f.console.Add(cmd, 0)
	cli.Seldom(cmd, "pack", "linger", "grace")
	return cmd
}

func (f *serveFlags) run(cmd *cobra.Command) error {
	if err := cli.NotEmpty(cmd, "token-file", "tls-cert"); err != nil {
		return err
	}
	if (f.tlsCert == "") != (f.tlsKey == "") {
		return cli.Usage("--tls-cert and --tls-key belong together")
	}
	console, file, err := f.around.Load("distributor", &f.console)
	if err != nil {
		return err
	}
	f.http.Log, f.options.Grace = console.Log, f.http.Grace
	f.http.Large = f.sender.BlobAbove > 0
	if kept := file.Config.Retention; kept > 0 && !cmd.Flags().Changed("keep-keys") {
		f.sender.KeepKeys = min(f.sender.KeepKeys, kept)
	}
	if err := f.access(file); err != nil {
		return err
	}
	// Before a port is opened: after a mistake nothing is done.
	if _, err := distributor.NewSender(file.Config, f.sender); err != nil {
		return cli.Explain(err, file)
	}
	if err := f.open(); err != nil {
		return err
	}
	defer f.around.Port.Close() // after everything else: it shows how the server stops
	ctx, end := console.Outlive(cmd.Context())
	defer end()
	return f.serve(ctx, console, file)
}

// access says who may post.
func (f *serveFlags) access(file *configfile.File) error {
	if f.tokens != "" {
		f.http.Tokens = configfile.NewTokenFile(f.tokens)
		if _, err := f.http.Tokens.Read(); err != nil {
			return fmt.Errorf("--token-file: %w", err)
		}
	}
	if f.tlsCert != "" {
		first, err := tls.LoadX509KeyPair(f.tlsCert, f.tlsKey)
		if err != nil {
			return fmt.Errorf("--tls-cert: %w", err)
		}
		var good atomic.Pointer[tls.Certificate]
		good.Store(&first)
		says, log := rate.Sometimes{First: 1, Interval: 10 * time.Second}, f.http.Log
		f.http.TLS = &tls.Config{
			MinVersion: tls.VersionTLS12,
			// Read for each connection, so a renewed certificate counts at once, when its key is there.
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				if pair, err := tls.LoadX509KeyPair(f.tlsCert, f.tlsKey); err == nil {
					good.Store(&pair)
				} else {
					says.Do(func() { log.Error("--tls-cert: the certificate before it is used", "error", err) })
				}
				return good.Load(), nil
			},
		}
	}
	return cli.Explain(serve.Check(f.http), file)
}

func (f *serveFlags) serve(
	ctx context.Context, console *cli.Console, file *configfile.File,
) error {
	cfg, exported, err := f.around.Surrounded()
	if err != nil {
		return err
	}
	defer exported()
	if f.http.Sender, err = distributor.NewSender(cfg, f.sender); err != nil {
		return cli.Explain(err, file)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	f.around.Stop = func() { stop(&cli.Interrupted{Signal: syscall.SIGTERM}) }
	server := serve.New(f.http)
	service.LimitMemory(ctx, server.Memory, false, console.Log)
	d := f.http.Sender.Distributor()
	f.around.Port.ShowDistributor(d, server.State)
	f.around.Port.Also(server)
	f.around.Reloads(nil, d.Reload)
	look := service.Sending(server.State, d.Loops)
	summary, err := service.Run(ctx, &f.around.Supervised, look, server)
	console.Log.Info("the server has ended", "run", summary.Run, "tasks", summary.Tasks,
		"messages", summary.Envelopes)
	if i, is := cli.WasInterrupted(ctx).(*cli.Interrupted); is && i.Signal == syscall.SIGPIPE {
		return i // nobody has stopped it: the reader of its log is gone
	}
	return cli.Explain(err, file)
}
