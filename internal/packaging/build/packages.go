package main

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// nfpmModule makes deb and rpm. Later versions need a module that not every proxy serves.
const nfpmModule = "github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.1"

const contentsFile = "internal/packaging/nfpm.yaml"

func (b *build) packages() error {
	to := filepath.Join(b.out, "package")
	if err := errors.Join(os.RemoveAll(to), os.MkdirAll(to, 0o755)); err != nil {
		return err
	}
	for _, arch := range architectures {
		if err := b.binaries(arch); err != nil {
			return err
		}
	}
	if err := b.completions(architectures...); err != nil {
		return err
	}
	for _, arch := range architectures {
		err := errors.Join(b.nfpm(to, arch, "deb"), b.nfpm(to, arch, "rpm"), b.archive(to, arch))
		if err != nil {
			return err
		}
	}
	return writeSums(to)
}

// deb makes one package, for a trial on this machine.
func (b *build) deb() error {
	to := filepath.Join(b.out, "package")
	if err := errors.Join(os.RemoveAll(to), os.MkdirAll(to, 0o755)); err != nil {
		return err
	}
	if err := b.binaries(runtime.GOARCH); err != nil {
		return err
	}
	if err := b.completions(runtime.GOARCH); err != nil {
		return err
	}
	return b.nfpm(to, runtime.GOARCH, "deb")
}

func (b *build) nfpm(to, arch, format string) error {
	return b.run([]string{"VERSION=" + b.version, "ARCH=" + arch, "BUILT=" + b.built(arch)},
		goTool(), "run", nfpmModule, "package",
		"--config", contentsFile, "--packager", format, "--target", to+"/")
}

// completions has a binary of this machine print its completions for the shells, which are the same
// for all architectures.
func (b *build) completions(archs ...string) error {
	native := b.built(runtime.GOARCH)
	if runtime.GOOS != "linux" || !slices.Contains(architectures, runtime.GOARCH) {
		return fmt.Errorf("packages are made on Linux on %s: a binary prints its completions",
			strings.Join(architectures, " or "))
	}
	for name := range programs {
		// Without a folder in its name it would be looked for in PATH.
		binary, err := filepath.Abs(filepath.Join(native, name))
		if err != nil {
			return err
		}
		for _, shell := range []string{"bash", "zsh", "fish"} {
			text, err := exec.Command(binary, "completion", shell).Output()
			if err != nil {
				return fmt.Errorf("%s completion %s: %w", name, shell, err)
			}
			for _, arch := range archs {
				file := filepath.Join(b.built(arch), name+"."+shell)
				if err := os.WriteFile(file, text, 0o644); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// content is an entry of nfpm.yaml.
type content struct {
	Src      string `yaml:"src"`
	Dst      string `yaml:"dst"`
	Type     string `yaml:"type"`
	Packager string `yaml:"packager"`
	FileInfo struct {
		Mode fs.FileMode `yaml:"mode"`
	} `yaml:"file_info"`
}

// contents are the entries of nfpm.yaml that are in the archive: those of every package, and those
// of the rpm, because their paths are not peculiar to Debian.
func contents(text []byte) ([]content, error) {
	var file struct {
		Contents []content `yaml:"contents"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", contentsFile, err)
	}
	list := slices.DeleteFunc(file.Contents, func(c content) bool { return c.Packager == "deb" })
	slices.SortFunc(list, func(a, b content) int { return cmp.Compare(a.Dst, b.Dst) })
	return list, nil
}

// archive writes the tar.gz of an architecture.
func (b *build) archive(to, arch string) error {
	text, err := os.ReadFile(contentsFile)
	if err != nil {
		return err
	}
	list, err := contents(text)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("queuepump_%s_linux_%s", b.version, arch)
	f, err := os.Create(filepath.Join(to, name+".tar.gz"))
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := b.writeTree(z, name, arch, list); err != nil {
		return err
	}
	return errors.Join(z.Close(), f.Close())
}

// writeTree writes contents as a tar, below a folder of the archive's name.
func (b *build) writeTree(w io.Writer, name, arch string, list []content) error {
	t := tar.NewWriter(w)
	for _, c := range list {
		h := &tar.Header{
			Name: path.Join(name, c.Dst), Mode: int64(c.FileInfo.Mode), ModTime: b.when,
			Uname: "root", Gname: "root", Format: tar.FormatPAX,
		}
		var data []byte
		if c.Type == "dir" {
			h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		} else {
			var err error
			data, err = os.ReadFile(strings.ReplaceAll(c.Src, "${BUILT}", b.built(arch)))
			if err != nil {
				return err
			}
			h.Typeflag, h.Size = tar.TypeReg, int64(len(data))
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(data); err != nil {
			return err
		}
	}
	return t.Close()
}

// writeSums writes SHA256SUMS, which sha256sum -c reads, for all files of a folder.
func writeSums(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		if e.Name() != "SHA256SUMS" {
			fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), e.Name())
		}
	}
	return os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(sums.String()), 0o644)
}
