package main

import (
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
	if given != "" && !validVersion.MatchString(given) {
		return release{}, fmt.Errorf("%q is not a version: write one as 1.2.3 or 1.2.3~rc.1", given)
	}
	commit, err := git("log", "-1", "--format=%ct %h", "--abbrev=12")
	switch {
	case err != nil && given == "":
		return release{}, fmt.Errorf("git cannot tell the version; give one with VERSION=: %w", err)
	case err != nil:
		return release{version: given, revision: "v" + given, when: time.Unix(0, 0).UTC()}, nil
	}
	seconds, hash, _ := strings.Cut(commit, " ")
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return release{}, fmt.Errorf("git log: %w", err)
	}
	when := time.Unix(n, 0).UTC()
	if given != "" {
		return release{version: given, revision: "v" + given, when: when}, nil
	}
	tag, _ := git("describe", "--tags", "--match", "v[0-9]*", "--abbrev=0")
	ahead := ""
	if tag != "" {
		if ahead, err = git("rev-list", "--count", tag+"..HEAD"); err != nil {
			return release{}, err
		}
	}
	changes, err := git("status", "--porcelain", "--untracked-files=no")
	if err != nil {
		return release{}, err
	}
	return named(tag, ahead, hash, when, changes != "")
}

var (
	versionTag   = regexp.MustCompile(`^v(\d+\.\d+\.\d+)(?:-([0-9A-Za-z.]+))?$`)
	validVersion = regexp.MustCompile(`^\d[0-9A-Za-z.+~]*$`)
)

// named names a commit: by its tag; by the last tag, its time and its hash, which sorts after the
// tag; or without any tag before all versions.
func named(tag, ahead, hash string, when time.Time, changed bool) (release, error) {
	r := release{version: "0.0.0~", revision: hash, when: when}
	stamp := when.Format("20060102150405") + "." + hash
	switch m := versionTag.FindStringSubmatch(tag); {
	case tag == "":
		r.version += stamp
	case m == nil:
		return release{}, fmt.Errorf("tag %s is not a version: write one as v1.2.3 or v1.2.3-rc.1", tag)
	default:
		r.version, r.revision = m[1], tag
		if m[2] != "" {
			r.version += "~" + m[2]
		}
		if ahead != "0" {
			r.version += "+" + stamp
			r.revision += "+" + hash
		}
	}
	if changed {
		r.version += "+changes"
		r.revision += "+changes"
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
