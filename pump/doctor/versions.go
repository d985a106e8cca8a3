package doctor

import (
	"errors"
	"maps"
	"slices"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/setup"
)

// settings tells of processes that do not have the settings of the workload in force, although they
// have had the time between two looks.
func (c *checkup) settings(v *cluster.View) {
	if behind := v.Behind(); len(behind) > 0 {
		c.find(CheckSettings, Warning, setup.SomeOf(behind, 4), c.command("distributor workload set"),
			"settings of the workload are not in force in %d processes, which are of an older version, "+
				"or have not looked for two beats", len(behind))
	}
	_, unknown, err := setup.WithSettings(queues.Values{}, v.Workload.Settings)
	if len(unknown) > 0 || err != nil {
		c.find(CheckSettings, Warning, setup.SomeOf(unknown, 4), "distributor version",
			"settings of the workload are of a newer version than this program")
	}
}

// versions tells of live processes of different versions, be the formats that they read the same:
// what only one of them knows is not held by the other.
func (c *checkup) versions(v *cluster.View, silent []string) {
	var first *cluster.Member
	for i := range v.Members {
		switch m := &v.Members[i]; {
		case m.Err != nil || slices.Contains(silent, m.Instance), m.Version == logs.Unknown:
		case first == nil:
			first = m
		case !logs.SameRevision(m.Version, first.Version):
			c.find(CheckFormats, Warning, m.Instance, c.command("distributor status")+" --json",
				"processes of version %s and of version %s are at work: switch on nothing that is new before "+
					"all are of the newer one", m.Version, first.Version)
			return
		}
	}
}

// formats tells of processes of different versions, as far as that matters: the format of envelopes
// that each reads, and rows that this version cannot read.
func (c *checkup) formats(v *cluster.View, silent []string) {
	by := map[int][]string{codec.Version: nil}
	damaged := slices.Clone(v.Damaged)
	var unread []string
	for i := range v.Members {
		switch m := &v.Members[i]; {
		case m.Err != nil:
			unread = append(unread, m.Instance)
			damaged = slices.DeleteFunc(damaged, func(err error) bool { return errors.Is(err, m.Err) })
		case slices.Contains(silent, m.Instance):
		case m.Role == cluster.RoleProcessor:
			reads := max(m.Reads, 1)
			by[reads] = append(by[reads], m.Instance)
		}
	}
	if len(unread) > 0 {
		c.find(
			CheckFormats,
			Error,
			setup.SomeOf(unread, 4),
			"distributor version",
			"rows of processes cannot be read: they are damaged, or of a newer version than this program",
		)
	}
	formats := slices.Sorted(maps.Keys(by))
	if oldest, newest := formats[0], formats[len(formats)-1]; oldest < newest {
		subject, mend := by[oldest], "restart these processes with the newer version"
		if len(subject) == 0 {
			subject, mend = by[newest], "install the version of the processes here"
		}
		c.find(
			CheckFormats,
			Warning,
			setup.SomeOf(subject, 4),
			mend,
			"messages of format %d and of format %d are read: what only one version understands is not used",
			oldest,
			newest,
		)
	}
	c.versions(v, silent)
	for _, err := range damaged {
		if _, newer := errors.AsType[*row.NewerFormat](err); newer {
			c.find(CheckFormats, Error, "", "distributor version", "%v", err)
			continue
		}
		c.find(CheckRows, Error, "", c.command("distributor status"), "%v", err)
	}
}
