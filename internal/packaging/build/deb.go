package main

import (
	"cmp"
	"crypto/md5"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"
)

// packaged are the parts of .goreleaser.yaml that a package of this machine takes from it.
type packaged struct {
	NFPMs []struct {
		Maintainer, Section, Priority, Homepage, Description string

		Overrides map[string]struct{ Dependencies, Recommends []string }
		Scripts   map[string]string
	} `yaml:"nfpms"`
}

// deb makes one package by dpkg-deb: goreleaser and nfpm take minutes to build.
func (b *build) deb() error {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		return errors.New("dpkg-deb is not here; Debian and Ubuntu have it in their package dpkg")
	}
	root := filepath.Join(b.out, "deb")
	if err := b.files(root, native()); err != nil {
		return err
	}
	for name := range programs {
		if err := b.binary(name, filepath.Join(root, "usr/bin"), native()); err != nil {
			return err
		}
	}
	if err := b.control(root); err != nil {
		return err
	}
	file := fmt.Sprintf("queuepump_%s_%s.deb", b.version, native().arch)
	file = filepath.Join(b.out, "package", file)
	// It replaces others, so that a pattern names one.
	err := errors.Join(os.RemoveAll(filepath.Dir(file)), os.MkdirAll(filepath.Dir(file), 0o755))
	return cmp.Or(err,
		b.run(nil, "dpkg-deb", "--root-owner-group", "-Zgzip", "-z6", "--build", root, file))
}

// control writes what dpkg asks of a package.
func (b *build) control(root string) error {
	text, err := os.ReadFile(".goreleaser.yaml")
	if err != nil {
		return err
	}
	var config packaged
	if err := yaml.Unmarshal(text, &config); err != nil || len(config.NFPMs) == 0 {
		return fmt.Errorf(".goreleaser.yaml has no nfpms: %w", err)
	}
	p := config.NFPMs[0]
	var sums, configs strings.Builder
	size := 0
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		mode, name := fs.FileMode(0o644), strings.TrimPrefix(path, root+"/")
		if e.IsDir() || filepath.Dir(name) == "usr/bin" {
			mode = 0o755
		}
		if err := os.Chmod(path, mode); err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		size += len(data)
		if strings.HasPrefix(name, "etc/") {
			configs.WriteString("/" + name + "\n")
		} else {
			fmt.Fprintf(&sums, "%x  %s\n", md5.Sum(data), name)
		}
		return err
	})
	if err != nil {
		return err
	}
	control := fmt.Sprintf("Package: queuepump\nVersion: %s\nArchitecture: %s\nMaintainer: %s\n"+
		"Section: %s\nPriority: %s\nHomepage: %s\nInstalled-Size: %d\nDepends: %s\nRecommends: %s\n"+
		"Description: %s\n", b.version, native().arch, p.Maintainer, p.Section, p.Priority, p.Homepage,
		size>>10, strings.Join(p.Overrides["deb"].Dependencies, ", "),
		strings.Join(p.Overrides["deb"].Recommends, ", "),
		strings.ReplaceAll(strings.TrimSpace(p.Description), "\n", "\n "))
	to := filepath.Join(root, "DEBIAN")
	err = errors.Join(os.Mkdir(to, 0o755), os.Chmod(filepath.Join(root, "etc/queuepump"), 0o750))
	for name, text := range map[string]string{
		"control": control, "md5sums": sums.String(), "conffiles": configs.String(),
	} {
		err = errors.Join(err, os.WriteFile(filepath.Join(to, name), []byte(text), 0o644))
	}
	for name, as := range map[string]string{
		"postinstall": "postinst", "preremove": "prerm", "postremove": "postrm",
	} {
		text, readErr := os.ReadFile(p.Scripts[name])
		err = errors.Join(err, readErr, os.WriteFile(filepath.Join(to, as), text, 0o755))
	}
	return err
}
