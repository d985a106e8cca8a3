package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
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
	var names []string
	err := fs.WalkDir(os.DirFS("."), "docs", func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			names = append(names, name)
		}
		return err
	})
	names = append(names, "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
	packed := map[string]bool{}
	for _, name := range names {
		packed[name], packed[path.Dir(name)] = true, true
	}
	for _, name := range names {
		text, readErr := os.ReadFile(name)
		if path.Ext(name) == ".md" {
			text = closed(text, path.Dir(name), packed)
		}
		file := filepath.Join(to, docFolder, name)
		err = errors.Join(err, readErr, os.MkdirAll(filepath.Dir(file), 0o755),
			os.WriteFile(file, text, 0o644))
	}
	return err
}

var relative = regexp.MustCompile(`(?m)(\]\(|^\[[^\]]+\]: +)([^)\s#]+)`)

// closed is a document of a folder, in which each relative link leads to what is packed.
func closed(text []byte, folder string, packed map[string]bool) []byte {
	return relative.ReplaceAllFunc(text, func(link []byte) []byte {
		m := relative.FindSubmatch(link)
		name := path.Join(folder, string(m[2]))
		if strings.Contains(string(m[2]), "://") || packed[name] {
			return link
		}
		return append(bytes.Clone(m[1]), published+name...)
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
