package logs

import (
	"runtime/debug"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
)

func TestARevisionIsOfThisModuleAlsoInProgramsOfOthers(t *testing.T) {
	ours := func(version string) *debug.Module { return &debug.Module{Path: modulePath, Version: version} }
	commit := []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"},
	}
	for want, info := range map[string]*debug.BuildInfo{
		"v1.2.3":               {Main: *ours("v1.2.3")},
		"0123456789ab+changes": {Main: *ours("(devel)"), Settings: commit},
		"v0.9.0": {
			Main: debug.Module{Path: "example.com/worker", Version: "v7.0.0"}, Settings: commit,
			Deps: []*debug.Module{ours("v0.9.0")},
		},
		"unknown": {
			Main: debug.Module{Path: "example.com/worker"}, Settings: commit,
			Deps: []*debug.Module{ours("(devel)")},
		},
	} {
		proof.Same(t, revisionOf(info), want)
	}
	if Revision() == "" || !SameRevision("v1.2.3+0123456789ab", "v1.2.3") || SameRevision("v1.2.3", "v1.2.4") {
		t.Errorf("%q; builds of one version differ, or versions do not", Revision())
	}
}
