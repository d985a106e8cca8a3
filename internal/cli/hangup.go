package cli

import (
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/term"

	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/configfile"
	"github.com/queuepump/queuepump/internal/service"
	"github.com/queuepump/queuepump/pump"
)

// hangups are the SIGHUPs since the process began; nil: they end it.
var hangups chan os.Signal

// takeHangups keeps SIGHUP from ending a process that has only just begun. If the log goes to a
// terminal, the signal says that the terminal was closed, and still ends the process.
func takeHangups() {
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		hangups = make(chan os.Signal, 1) // signals that come while the first is handled count as one
		signal.Notify(hangups, syscall.SIGHUP)
	}
}

const takesHangups = "takes SIGHUP"

// TakesHangup marks a command that calls OnHangup.
func TakesHangup(cmd *cobra.Command) { cmd.Annotations = map[string]string{takesHangups: ""} }

// leaveHangups lets SIGHUP end any other command, also if it has come already.
func leaveHangups(root *cobra.Command) {
	cmd, _, err := root.Find(os.Args[1:])
	if _, takes := cmd.Annotations[takesHangups]; err == nil && takes || hangups == nil {
		return
	}
	signal.Reset(syscall.SIGHUP)
	select {
	case <-hangups:
		os.Exit(exitCode(&Interrupted{syscall.SIGHUP}))
	default:
	}
}

// OnHangup has f called for each SIGHUP since the process began, as users expect from a daemon.
func (c *Console) OnHangup(f func()) {
	if hangups == nil {
		return
	}
	go func() {
		for range hangups {
			f()
		}
	}()
}

// Keys has the keys and signatures of a configuration's accounts read again from the file at path
// when one is refused.
func Keys(log *slog.Logger, path string, file *configfile.File) (*service.Keys, error) {
	keys := service.NewKeys(log, func() ([]pump.Account, error) {
		now, err := configfile.Load(path)
		if err != nil {
			return nil, err
		}
		return now.Config.Accounts, nil
	})
	take, err := keys.Adopt(file.Config.Accounts)
	if err != nil {
		return nil, Explain(err, file)
	}
	take()
	return keys, nil
}

// Reload reads the configuration at path again and lets apply take what is new in it. The log tells
// the result. Reload takes nothing from a wrong file.
func (c *Console) Reload(
	path string, was *configfile.File, keys *service.Keys, apply func(*configfile.File) error,
) error {
	file, err := configfile.Load(path)
	if err == nil {
		var take func()
		if take, err = keys.Adopt(file.Config.Accounts); err == nil {
			err = apply(file)
		}
		if err = Explain(err, file); err == nil {
			take()
		}
	}
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			c.Log.Error("the configuration is not taken; the process goes on as before",
				"error", strings.TrimSpace(line))
		}
		return err
	}
	if file.Admin != was.Admin {
		c.Log.Warn("the admin port stays where it is until the process is started again")
	}
	if file.Page.TokenFile != was.Page.TokenFile {
		c.Log.Warn("page.tokenFile has changed: "+
			"the page uses the old file until the process is started again",
			"before", was.Page.TokenFile, "now", file.Page.TokenFile)
	}
	if file.Page.ByCommand != was.Page.ByCommand {
		c.Log.Warn("page.onAdminPort has changed: " +
			"the page stays where it is until the process is started again")
	}
	c.Log.Info("the configuration was read again", "file", path)
	return nil
}
