package operate

import (
	"cmp"
	"errors"
	"time"

	"github.com/queuepump/queuepump/internal/admin"
	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/internal/configfile"
	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/internal/service"
	"github.com/queuepump/queuepump/internal/telemetry"
	"github.com/queuepump/queuepump/pump"
)

// Surrounding is what surrounds a distributor or a processor that runs. Its methods are called in
// their order, once each.
type Surrounding struct {
	service.Supervised
	Config string        // the flag --config
	Admin  string        // the flag --admin
	Port   *admin.Server // nil: no port

	role    string
	console *cli.Console
	file    *configfile.File
	page    *admin.Page // nil: no port
}

// Load opens the console and reads the configuration.
func (s *Surrounding) Load(
	role string, flags *cli.ConsoleFlags,
) (_ *cli.Console, _ *configfile.File, err error) {
	s.role = role
	if s.console, err = flags.Console(); err == nil {
		s.file, err = configfile.Load(s.Config)
	}
	if err == nil && s.Admin != admin.Off {
		err = s.file.CheckAdmin()
	}
	return s.console, s.file, err
}

// Begin reads the keys and finds the service manager. Kill ends what would outlive the process.
func (s *Surrounding) Begin(grace time.Duration, kill func()) (err error) {
	if s.Keys, err = cli.Keys(s.console.Log, s.Config, s.file); err != nil {
		return err
	}
	s.Events = service.NewEvents(s.file.Events, s.console.Log)
	s.Manager, s.Grace = service.Open(s.console.Log), grace
	s.AtOnce = s.console.AtOnce(kill)
	s.Admin = cmp.Or(s.Admin, s.file.Admin.Listen)
	return admin.Check(s.Admin, s.file.Admin.Advertise)
}

// Open opens the admin port with the workload's page. The caller closes it.
func (s *Surrounding) Open() (err error) {
	if s.Admin != admin.Off && !s.file.Page.ByCommand {
		if s.page, err = newPage(s.Config, s.file, s.console.Log); err != nil {
			return err
		}
	}
	s.Port, err = admin.Open(admin.Options{
		Listen: s.Admin, Advertise: s.file.Admin.Advertise, Page: s.page,
		Workload: s.file.Config.Workload, Role: s.role, Version: logs.Revision(), Log: s.console.Log,
		Prices: s.file.Config.Prices,
	})
	return err
}

// Surrounded is the configuration of what runs; exported is called at its end.
func (s *Surrounding) Surrounded() (cfg pump.Config, exported func(), err error) {
	cfg = s.file.Config
	cfg.TracerProvider, exported, err = telemetry.Traces(s.role, logs.Revision(), s.console.Log)
	cfg.Log, cfg.Admin = s.console.Log, s.Port.Address()
	cfg.Hooks = s.Hooks(s.Port.Hooks(cfg.Hooks))
	if err != nil {
		err = cli.Usage("%w", err)
	}
	return cfg, exported, err
}

// Reloads makes what runs take what is new in its configuration on SIGHUP, after first, if there is
// something to do before.
func (s *Surrounding) Reloads(first func(), reload func(pump.Config) error) {
	s.Port.Also(s.Keys)
	s.console.OnHangup(func() {
		if first != nil {
			first()
		}
		_ = s.Manager.Reload(func() error {
			return s.console.Reload(s.Config, s.file, s.Keys, func(now *configfile.File) error {
				return errors.Join(reload(now.Config), s.page.Reload(now.Config))
			})
		})
	})
}
