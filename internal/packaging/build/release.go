package main

import (
	"cmp"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// release is what is built: a commit, by its names.
type release struct {
	version  string    // of packages: deb and rpm both order it
	revision string    // of the binaries
	when     time.Time // of the commit: the time of all that is packed
}

// currentRelease asks git. A version that is given needs no git, as in a source archive.
func currentRelease(given string) (release, error) {
	commit, err := git("log", "-1", "--format=%ct %h", "--abbrev=12")
	if err != nil && given == "" {
		return release{}, fmt.Errorf("git cannot tell the version; give one with VERSION=: %w", err)
	}
	seconds, hash, _ := strings.Cut(commit, " ")
	n, _ := strconv.ParseInt(seconds, 10, 64)
	when := time.Unix(n, 0).UTC()
	if given == "" {
		given, _ = git("describe", "--tags", "--match", "v[0-9]*", "--abbrev=12")
	}
	given = cmp.Or(given, "v0.0.0-"+when.Format("20060102150405")+"."+hash)
	return named(given, hash, when)
}

// A tag; what `git describe` says of a commit behind one; or an invented one before all versions.
var described = regexp.MustCompile(`^v(\d+\.\d+\.\d+)` +
	`(?:-([0-9A-Za-z.]+?))??(?:-(\d+)-g([0-9a-f]+))?$`)

// named names a commit that is described so. Packages of it are between those of its tag and of the
// next one.
func named(given, hash string, when time.Time) (release, error) {
	m := described.FindStringSubmatch(given)
	if m == nil {
		return release{}, fmt.Errorf("%q is not a version: write one as v1.2.3 or v1.2.3-rc.1", given)
	}
	r := release{version: m[1], revision: given, when: when}
	if m[2] != "" {
		r.version += "~" + m[2]
	}
	if m[3] != "" {
		r.version += "+" + m[3] + "." + m[4]
	}
	if !strings.Contains(given, hash) {
		r.revision += "+" + hash
	}
	return r, nil
}

func git(args ...string) (string, error) {
	out, err := exec.Command("git", args...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}
