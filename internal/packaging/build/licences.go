package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// permissive are the licences that linked code may have: they ask for their text, and nothing else
// of users.
var permissive = map[string]bool{
	"MIT": true, "BSD-2-Clause": true, "BSD-3-Clause": true, "Apache-2.0": true, "ISC": true,
}

// embedded are what the binaries hold beside code in Go, by the files with their licences.
var embedded = map[string]string{"uPlot": "internal/admin/uPlot.LICENSE"}

// untold are modules that say their licence in their README, and bring no text of it.
var untold = map[string]string{"github.com/mattn/go-localereader": "MIT"}

// phrases tell a licence: the letters of its text have all of them. A file may have several
// licences. Those after ISC may not be linked.
var phrases = map[string][]string{
	"MIT": {
		"permission is hereby granted free of charge to any person obtaining a copy",
		"this permission notice shall be included in all copies",
		"the software is provided as is without warranty of any kind",
	},
	"BSD-2-Clause": {
		"redistributions of source code must retain the above copyright",
		"materials provided with the distribution this software is provided by",
	},
	"BSD-3-Clause": {
		"redistributions of source code must retain the above copyright",
		"materials provided with the distribution neither the name",
	},
	"Apache-2.0": {
		"apache license version january",
		"subject to the terms and conditions of this license each contributor hereby grants to you",
		"you must give any other recipients of the work or derivative works a copy of this license",
	},
	"ISC": {
		"distribute this software for any purpose with or without fee is hereby granted",
		"the software is provided as is and the author disclaims all warranties",
	},
	"BSD-4-Clause": {"all advertising materials mentioning features"},
	"CC":           {"creative commons"}, "CDDL": {"common development and distribution license"},
	"EPL": {"eclipse public license"}, "GPL": {"general public license"},
	"MPL": {"mozilla public license"}, "SSPL": {"server side public license"},
	"BUSL": {"business source license"}, "Commons Clause": {"commons clause"},
}

var letters = regexp.MustCompile(`[^a-z]+`)

// part is something that the binaries hold and that others have made.
type part struct {
	name, version string
	kinds         []string // of its licences
	texts         []string // of its licences and notices
}

// licenceFile is a file with a licence, or with a text that must go along with it.
var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-.].*)?$`)

// partsOf are the parts of the programs for all of the platforms, by name. It is an error if one of
// them has no licence that is known and permissive. It runs in the root of the source tree.
func partsOf(all ...platform) ([]part, error) {
	env, err := goOutput(native(), "env", "GOROOT", "GOVERSION")
	if err != nil {
		return nil, err
	}
	root, version, _ := strings.Cut(env, "\n")
	found := map[string]*part{"Go": {name: "Go", version: version}}
	errs := []error{found["Go"].take(root)}
	for name, file := range embedded {
		found[name] = &part{name: name}
		errs = append(errs, found[name].read(file))
	}
	for name, kind := range untold {
		text := kind + ", as its README says"
		found[name] = &part{name: name, kinds: []string{kind}, texts: []string{text}}
	}
	list, seen := "", map[string]bool{}
	for _, p := range all {
		text, err := goOutput(p, append([]string{"list", "-deps", "-json=Dir,Module"},
			slices.Collect(maps.Values(programs))...)...)
		if err != nil {
			return nil, err
		}
		list += text
	}
	linked := map[string]bool{}
	for d := json.NewDecoder(strings.NewReader(list)); ; {
		var p struct {
			Dir    string
			Module *struct {
				Path, Version, Dir string
				Main               bool
			}
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		if p.Module == nil || p.Module.Main {
			continue
		}
		linked[p.Module.Path] = true
		of := found[p.Module.Path]
		if of == nil {
			of = &part{name: p.Module.Path, version: p.Module.Version}
			found[p.Module.Path] = of
		}
		// A package that was taken from elsewhere has its licence beside it.
		for dir := p.Dir; !seen[dir] && strings.HasPrefix(dir, p.Module.Dir); dir = filepath.Dir(dir) {
			seen[dir] = true
			errs = append(errs, of.take(dir))
		}
	}
	var parts []part
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if untold[name] != "" && !linked[name] {
			continue
		}
		errs = append(errs, found[name].judge())
		parts = append(parts, *found[name])
	}
	return parts, errors.Join(errs...)
}

// goOutput is what the go command says for a platform.
func goOutput(p platform, args ...string) (string, error) {
	cmd := exec.Command(goTool(), args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.arch)
	var failed bytes.Buffer
	cmd.Stderr = &failed
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", cmd, err, &failed)
	}
	return strings.TrimSpace(string(out)), nil
}

// take reads the licences of a folder.
func (p *part) take(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() && licenceFile.MatchString(e.Name()) && filepath.Ext(e.Name()) != ".go" {
			if err := p.read(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// read reads a file with a licence or a notice.
func (p *part) read(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	p.texts = append(p.texts, strings.TrimSpace(strings.ReplaceAll(string(text), "\r\n", "\n")))
	name := strings.ToLower(filepath.Base(file))
	if strings.HasPrefix(name, "notice") || strings.HasPrefix(name, "patents") {
		return nil // it goes along but is not a licence
	}
	words, known := letters.ReplaceAllString(strings.ToLower(string(text)), " "), false
	missing := func(phrase string) bool { return !strings.Contains(words, phrase) }
	for kind, all := range phrases {
		if !slices.ContainsFunc(all, missing) {
			p.kinds, known = append(p.kinds, kind), true
		}
	}
	if !known {
		return fmt.Errorf("%s: %s is not a known licence", p.name, file)
	}
	return nil
}

// judge is an error if a licence of the part is not permissive, or it has none.
func (p *part) judge() error {
	slices.Sort(p.kinds)
	p.kinds = slices.Compact(p.kinds)
	if len(p.kinds) == 0 {
		return fmt.Errorf("%s has no licence", p.name)
	}
	for _, kind := range p.kinds {
		if !permissive[kind] {
			return fmt.Errorf("%s has the licence %s, which is not among those that may be linked",
				p.name, kind)
		}
	}
	return nil
}

// copyright writes the terms of the programs: the project's own and those of all parts, each text
// once.
func (b *build) copyright(file string, all ...platform) error {
	own, err := os.ReadFile("LICENSE")
	if err != nil {
		return err
	}
	parts, err := partsOf(all...)
	if err != nil {
		return err
	}
	return os.WriteFile(file, terms(string(own), parts), 0o644)
}

// terms are the texts behind each other, each with the names of the parts that it is of.
func terms(own string, parts []part) []byte {
	of := map[string][]string{}
	for _, p := range parts {
		for _, text := range p.texts {
			name := strings.TrimSpace(p.name + " " + p.version)
			if !slices.Contains(of[text], name) {
				of[text] = append(of[text], name)
			}
		}
	}
	var out bytes.Buffer
	rule := strings.Repeat("-", 80) + "\n"
	fmt.Fprintf(&out, "queuepump\n\n%s\n\n%sThe binaries hold parts that others have made, "+
		"each under its own terms.\n",
		strings.TrimSpace(own), rule)
	texts := slices.SortedFunc(maps.Keys(of), func(a, b string) int {
		return cmp.Or(cmp.Compare(of[a][0], of[b][0]), cmp.Compare(a, b))
	})
	for _, text := range texts {
		fmt.Fprintf(&out, "%s%s:\n\n%s\n\n", rule, strings.Join(of[text], ",\n"), text)
	}
	return out.Bytes()
}
