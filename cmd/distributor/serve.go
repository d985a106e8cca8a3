package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/admin"
	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/internal/configfile"
	"github.com/queuepump/queuepump/internal/operate"
	"github.com/queuepump/queuepump/internal/serve"
	"github.com/queuepump/queuepump/internal/service"
	"github.com/queuepump/queuepump/internal/telemetry"
	"github.com/queuepump/queuepump/pump/distributor"
)

// serveFlags are the flags of `distributor serve`.
type serveFlags struct {
	config          string
	admin           string
	tokens          string
	tlsCert, tlsKey string
	console         cli.ConsoleFlags
	sender          distributor.SenderOptions
	options         serve.Options
	service         *service.Supervised
	page            *admin.Page // nil: no port
	file            *configfile.File
	log             *cli.Console
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
	cli.ConfigFlag(cmd, &f.config)
	cli.TakesHangup(cmd)
	flags.StringVar(&f.options.Listen, "listen", "127.0.0.1:8080",
		"where tasks are posted, `ADDR` as host:port, or unix: and a path")
	flags.StringVar(&f.tokens, "token-file", "",
		"the `FILE` with tokens of who may send, a line each; needed beyond loopback")
	flags.StringVar(&f.tlsCert, "tls-cert", "", "the `FILE` with the certificate, for HTTPS")
	flags.StringVar(&f.tlsKey, "tls-key", "", "the `FILE` with the key of --tls-cert")
	flags.StringVar(&f.options.Key, "key", "",
		"the `FIELD` that tasks are segmented by (default: tasks have no key)")
	flags.StringVar(&f.options.ID, "id", "", "the `FIELD` with your own name of the task")
	flags.DurationVar(&f.sender.KeepKeys, "keep-keys", 24*time.Hour,
		"how long an Idempotency-Key is kept, up to the retention")
	flags.DurationVar(&f.sender.Linger, "linger", 10*time.Millisecond,
		"how long a task waits for others to share its message")
	flags.IntVar(&f.sender.Pack, "pack", 0, "the most tasks in a message (default: as many as fit)")
	flags.DurationVar(&f.options.Grace, "grace", 20*time.Second,
		"how long posts under way may take after a signal")
	flags.StringVar(&f.admin, "admin", "",
		"where the admin port listens, `ADDR` as host:port, or off "+
			"(default: what the configuration says, or a free port of loopback)")
	f.console.Add(cmd, 0)
	cli.Seldom(cmd, "pack", "linger", "grace")
	return cmd
}

func (f *serveFlags) run(cmd *cobra.Command) (err error) {
	if (f.tlsCert == "") != (f.tlsKey == "") {
		return cli.Usage("--tls-cert and --tls-key belong together")
	}
	if f.log, err = f.console.Console(); err != nil {
		return err
	}
	f.options.Log = f.log.Log
	if f.file, err = configfile.Load(f.config); err != nil {
		return err
	}
	if f.admin != admin.Off {
		if err := f.file.CheckAdmin(); err != nil {
			return err
		}
	}
	if err := f.access(); err != nil {
		return err
	}
	// Before a port is opened: after a mistake nothing is done.
	if _, err := distributor.NewSender(f.file.Config, f.sender); err != nil {
		return cli.Explain(err, f.file)
	}
	keys, err := cli.Keys(f.log.Log, f.config, f.file)
	if err != nil {
		return err
	}
	f.service = &service.Supervised{
		Keys: keys, Events: service.NewEvents(f.file.Events, f.log.Log),
		Manager: service.Open(f.log.Log), Grace: f.options.Grace, AtOnce: f.log.AtOnce(func() {}),
	}
	listen := cmp.Or(f.admin, f.file.Admin.Listen)
	if f.page, err = operate.OpenPage(listen, f.config, f.file, f.log.Log); err != nil {
		return err
	}
	port, err := admin.Open(admin.Options{
		Listen: listen, Advertise: f.file.Admin.Advertise, Page: f.page,
		Workload: f.file.Config.Workload, Role: "distributor", Version: cli.Revision(),
		Log: f.log.Log, Prices: f.file.Config.Prices,
	})
	if err != nil {
		return err
	}
	defer port.Close() // after everything else: it shows how the server stops
	ctx, end := f.log.Outlive(cmd.Context())
	defer end()
	return f.serve(ctx, port)
}

// access says who may post.
func (f *serveFlags) access() error {
	if f.tokens != "" {
		f.options.Tokens = configfile.NewTokenFile(f.tokens)
		if _, err := f.options.Tokens.Read(); err != nil {
			return fmt.Errorf("--token-file: %w", err)
		}
	}
	if f.tlsCert != "" {
		if _, err := tls.LoadX509KeyPair(f.tlsCert, f.tlsKey); err != nil {
			return fmt.Errorf("--tls-cert: %w", err)
		}
		f.options.TLS = &tls.Config{
			MinVersion: tls.VersionTLS12,
			// Read for each connection, so a renewed certificate counts at once.
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				pair, err := tls.LoadX509KeyPair(f.tlsCert, f.tlsKey)
				return &pair, err
			},
		}
	}
	return cli.Explain(serve.Check(f.options), f.file)
}

func (f *serveFlags) serve(ctx context.Context, port *admin.Server) error {
	cfg := f.file.Config
	spans, exported, err := telemetry.Traces("distributor", cli.Revision(), f.log.Log)
	if err != nil {
		return cli.Usage("%w", err)
	}
	defer exported()
	cfg.TracerProvider = spans
	cfg.Log, cfg.Admin = f.log.Log, port.Address()
	cfg.Hooks = f.service.Hooks(port.Hooks(cfg.Hooks))
	if f.options.Sender, err = distributor.NewSender(cfg, f.sender); err != nil {
		return cli.Explain(err, f.file)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	f.service.Stop = func() { stop(&cli.Interrupted{Signal: syscall.SIGTERM}) }
	server := serve.New(f.options)
	service.LimitMemory(ctx, server.Memory, false, f.log.Log)
	d := f.options.Sender.Distributor()
	port.ShowSending(d, server.State)
	port.Also(f.service.Keys)
	port.Also(server)
	(&runFlags{config: f.config, service: f.service, page: f.page}).reloads(f.log, f.file, port, d)
	summary, err := service.Run(ctx, f.service, service.Sending(server.State, d.Loops), server)
	f.log.Log.Info("the server has ended", "run", summary.Run, "tasks", summary.Tasks,
		"messages", summary.Envelopes)
	return cli.Explain(err, f.file)
}
