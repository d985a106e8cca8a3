package main

import (
	"errors"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/internal/configfile"
	"github.com/queuepump/queuepump/pump/processor"
)

// reloads makes a processor take what is new in its configuration on SIGHUP, and open --out again,
// if it can.
func (f *runFlags) reloads(
	console *cli.Console, file *configfile.File, p *processor.Processor, reopen func(),
) {
	console.OnHangup(func() {
		if reopen != nil {
			reopen()
		}
		_ = f.service.Manager.Reload(func() error {
			return console.Reload(f.config, file, f.service.Keys, func(now *configfile.File) error {
				return errors.Join(p.Reload(now.Config), f.page.Reload(now.Config))
			})
		})
	})
}
