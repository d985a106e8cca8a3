package logs

import (
	"runtime/debug"
	"strings"
	"sync"
)

const modulePath = "github.com/queuepump/queuepump"

// Unknown is the revision of a build that nothing is known of.
const Unknown = "unknown"

// revision is set by the linker where packages are built.
var revision string

// Revision is the version of this module, or the commit that the binary was built from. Rows, logs
// and the command version have it from here.
var Revision = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if revision == "" && ok {
		return revisionOf(info)
	}
	return revision
})

// revisionOf is the version of this module in a program, which may be of another module.
func revisionOf(info *debug.BuildInfo) string {
	of := info.Main
	for _, d := range info.Deps {
		if d.Path == modulePath {
			of = *d
		}
	}
	if of.Version != "" && of.Version != "(devel)" {
		return of.Version
	}
	commit, changes := Unknown, ""
	for _, s := range info.Settings {
		switch {
		case of.Path != info.Main.Path: // the commit is of the program
		case s.Key == "vcs.revision":
			commit = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			changes = "+changes"
		}
	}
	return commit + changes
}

// SameRevision reports whether two revisions are known to be of one version: what stands behind a
// plus tells builds of it apart.
func SameRevision(a, b string) bool {
	a, _, _ = strings.Cut(a, "+")
	b, _, _ = strings.Cut(b, "+")
	return a == b
}
