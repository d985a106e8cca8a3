package main

import (
	"errors"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/internal/configfile"
	"github.com/queuepump/queuepump/pump/distributor"
)

// reloads makes a distributor take what is new in its configuration on SIGHUP.
func (f *runFlags) reloads(
	console *cli.Console, file *configfile.File, d *distributor.Distributor,
) {
	console.OnHangup(func() {
		_ = f.service.Manager.Reload(func() error {
			return console.Reload(f.config, file, f.service.Keys, func(now *configfile.File) error {
				return errors.Join(d.Reload(now.Config), f.page.Reload(now.Config))
			})
		})
	})
}
