package operate

import (
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/admin"
	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/internal/configfile"
	"github.com/queuepump/queuepump/internal/logs"
)

func newPage(config string, file *configfile.File, log *slog.Logger) (*admin.Page, error) {
	path, _ := configfile.Path(config)
	p, err := admin.NewPage(admin.PageOptions{
		Config: file.Config, Path: path, Locate: file.Locate, TokenFile: file.Page.TokenFile, Log: log,
	})
	return p, cli.Explain(err, file)
}

// pageGarbage lets garbage pile up to four times the memory in use, some 10 MiB: each reading is
// garbage at the next one, and collecting it would be a fifth of the page's computing.
const pageGarbage = 400

// pageFlags are the flags of `distributor page`.
type pageFlags struct {
	config  string
	listen  string
	json    bool
	console cli.ConsoleFlags
}

// PageAddress is what `page` prints with --json.
type PageAddress struct {
	Workload string `json:"workload"`
	URL      string `json:"url"`
}

func pageCommand() *cobra.Command {
	var f pageFlags
	cmd := &cobra.Command{
		Use:   "page",
		Short: "Serve the page that shows the workload, until a signal",
		Long: `Serve the page that shows the workload to people, until a signal: how things stand and
what limits them, accounts, queues, segments and their owners, runs, keys, gates,
quarantine, and what the doctor finds. It prints its address. Every process with an
admin port serves the same page there, below /page/.

It reads nothing without a viewer, and makes 25 requests a second at most for any number
of them. It shows what "status --json" says, and changes nothing, unless the
configuration names a file with a token: then who has the token can redrive what is in
quarantine. It listens on loopback unless told otherwise; docs/page.md says how others
reach it safely.`,
		Example: `  distributor page --config pump.yaml
  distributor page --config pump.yaml --listen 127.0.0.1:9080
  distributor page --config pump.yaml --json | jq -r .url`,
		Args: cli.NoArguments(nil),
		RunE: cli.Command(f.serve),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	cli.ConfigFlag(cmd, &f.config)
	cli.TakesHangup(cmd)
	flags.StringVar(&f.listen, "listen", "127.0.0.1:0",
		"where the page is, `ADDR` as host:port; port 0 is any that is free")
	flags.BoolVar(&f.json, "json", false, "print the address as a JSON object")
	f.console.Add(cmd, 0)
	return cmd
}

func (f *pageFlags) serve(cmd *cobra.Command) error {
	if f.listen == admin.Off || f.listen == "" {
		return cli.Usage("--listen: %q is not an address; write host:port, as in 127.0.0.1:9080",
			f.listen)
	}
	console, err := f.console.Console()
	if err != nil {
		return err
	}
	file, err := configfile.Load(f.config)
	if err != nil {
		return err
	}
	keys, err := cli.Keys(console.Log, f.config, file)
	if err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(pageGarbage)
	}
	p, err := newPage(f.config, file, console.Log)
	if err != nil {
		return err
	}
	port, err := admin.Open(admin.Options{
		Listen: f.listen, Workload: file.Config.Workload, Role: "page", Version: logs.Revision(),
		Page: p, PageAlone: true, Log: console.Log,
	})
	if err != nil {
		p.Close()
		return err
	}
	defer port.Close()
	console.OnHangup(func() {
		_ = console.Reload(f.config, file, keys, func(now *configfile.File) error {
			return p.Reload(now.Config)
		})
	})
	url := "http://" + port.Address() + admin.Path
	if f.json {
		err = printJSON(cmd.OutOrStdout(), PageAddress{file.Config.Workload, url})
	} else {
		_, err = fmt.Fprintln(cmd.OutOrStdout(), url)
	}
	if err != nil {
		return err
	}
	<-cmd.Context().Done()
	return nil // a signal is the usual end
}
