package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

const (
	published = "https://github.com/queuepump/queuepump/blob/main/"
	docFolder = "usr/share/doc/queuepump"
	// maintained is who answers for the packages, as .goreleaser.yaml has it too.
	maintained = "queuepump <queuepump@users.noreply.github.com>"
)

// files writes what packages hold beside the programs: units, examples, man pages, completions,
// documents, and the terms of what the programs link on these platforms.
func (b *build) files(to string, all ...platform) error {
	share := filepath.Join(to, "usr/share")
	err := os.RemoveAll(to)
	for _, dir := range []string{
		"man/man1", "bash-completion/completions", "fish/vendor_completions.d",
		"zsh/vendor-completions", "zsh/site-functions",
	} {
		err = errors.Join(err, os.MkdirAll(filepath.Join(share, dir), 0o755))
	}
	err = errors.Join(err, os.CopyFS(to, os.DirFS("internal/packaging/root")), documents(to))
	for name, source := range programs {
		err = cmp.Or(err, b.run(nil, goTool(), "run", "-tags", "packaging", source, share))
		if _, missing := os.Stat(filepath.Join(share, "man/man1", name+".1.gz")); err == nil {
			err = missing
		}
	}
	return cmp.Or(err, b.copyright(filepath.Join(to, docFolder, "copyright"), all...),
		b.changelog(filepath.Join(to, docFolder, "changelog.gz")))
}

// documents copies the documents and their pictures. What they lead to that is not among them is
// where the sources are published.
func documents(to string) error {
	// By their names here. Those of azsim move, because loadtest is a program in an archive.
	packed := map[string]string{
		"loadtest/azsim/README.md": "docs/azsim.md", "loadtest/azsim/AZURE.md": "docs/AZURE.md",
	}
	for _, pattern := range []string{"*.md", "docs/*.*", "docs/reports/*"} {
		found, _ := filepath.Glob(pattern) // its error is of the pattern
		for _, name := range found {
			packed[name] = name
		}
	}
	var err error
	for name, as := range packed {
		text, readErr := os.ReadFile(name)
		if path.Ext(name) == ".md" {
			text = closed(text, name, packed)
		}
		file := filepath.Join(to, docFolder, as)
		err = errors.Join(err, readErr, os.MkdirAll(filepath.Dir(file), 0o755),
			os.WriteFile(file, text, 0o644))
	}
	return err
}

var relative = regexp.MustCompile(`(?m)(\]\(|^\[[^\]]+\]: +)([^)\s#]+)`)

// closed is a document in which each relative link leads to what is packed.
func closed(text []byte, name string, packed map[string]string) []byte {
	return relative.ReplaceAllFunc(text, func(link []byte) []byte {
		m := relative.FindSubmatch(link)
		if strings.Contains(string(m[2]), "://") {
			return link
		}
		to := path.Join(path.Dir(name), string(m[2]))
		as, err := filepath.Rel(path.Dir(packed[name]), packed[to])
		if packed[to] == "" || err != nil {
			as = published + to
		}
		return append(bytes.Clone(m[1]), as...)
	})
}

// changelog writes the one entry that Debian wants, which names the document with all of them.
func (b *build) changelog(file string) error {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return err
	}
	fmt.Fprintf(z, "queuepump (%s) unstable; urgency=medium\n\n"+
		"  * Changes are in /%s/CHANGELOG.md.\n\n -- %s  %s\n",
		b.version, docFolder, maintained, b.when.Format(time.RFC1123Z))
	return errors.Join(z.Close(), os.WriteFile(file, out.Bytes(), 0o644))
}
