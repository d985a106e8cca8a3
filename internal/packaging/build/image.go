package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	imageName = "queuepump"
	imageHome = "/var/lib/queuepump"
	// imageUser is the number that images without a shell use for a user without rights.
	imageUser = 65532
)

var imagePrograms = []string{"distributor", "processor", "azsim"}

func (b *build) image() error {
	for _, p := range linux {
		for _, name := range imagePrograms {
			if err := b.binary(name, b.built(p.arch), p, "-trimpath"); err != nil {
				return err
			}
		}
	}
	return b.images(filepath.Join(b.out, "image"))
}

// built is the folder with the programs for the image of an architecture.
func (b *build) built(arch string) string { return filepath.Join(b.out, "built", arch) }

// images writes queuepump-image.tar, an OCI layout with the images of all architectures, and for
// each architecture an archive that `docker load` of any version reads.
func (b *build) images(to string) error {
	if err := errors.Join(os.RemoveAll(to), os.MkdirAll(to, 0o755)); err != nil {
		return err
	}
	tag, err := name.NewTag(imageName + ":" + b.imageTag())
	if err != nil {
		return err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range linux {
		img, err := b.imageOf(p.arch)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}},
		})
		file := filepath.Join(to, "queuepump-image-"+p.arch+".tar")
		if err := tarball.WriteToFile(file, tag, img); err != nil {
			return err
		}
	}
	return b.writeLayout(filepath.Join(to, "queuepump-image.tar"), index)
}

// imageTag is the version in the letters that a tag may have.
func (b *build) imageTag() string {
	return strings.NewReplacer("~", "-", "+", "-").Replace(b.version)
}

// imageOf is the image of an architecture: one layer, and how it is run.
func (b *build) imageOf(arch string) (v1.Image, error) {
	files, err := b.layer(arch)
	if err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil }
	layer, err := tarball.LayerFromOpener(open, tarball.WithCompressedCaching,
		tarball.WithCompressionLevel(gzip.BestCompression), tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	img := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	img, err = mutate.ConfigFile(mutate.ConfigMediaType(img, types.OCIConfigJSON), &v1.ConfigFile{
		OS: "linux", Architecture: arch, Created: v1.Time{Time: b.when},
		RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User:       fmt.Sprintf("%d:%d", imageUser, imageUser),
			WorkingDir: imageHome,
			Env:        []string{"PATH=/usr/bin", "HOME=" + imageHome},
			// Each program is run by its name; without one the image says what it has.
			Cmd: []string{"processor", "--help"},
			Labels: map[string]string{
				"org.opencontainers.image.title":    imageName,
				"org.opencontainers.image.version":  b.version,
				"org.opencontainers.image.revision": b.revision,
				"org.opencontainers.image.source":   "https://github.com/queuepump/queuepump",
				"org.opencontainers.image.licenses": "MIT",
			},
		},
	})
	if err != nil {
		return nil, err
	}
	return mutate.Append(img, mutate.Addendum{
		Layer: layer, MediaType: types.OCILayer,
		History: v1.History{Created: v1.Time{Time: b.when}, CreatedBy: "make release"},
	})
}

// layer is the tar of all that the image holds. The binaries bring the certificates of authorities
// with them; a file mounted at /etc/ssl/certs/ca-certificates.crt takes their place.
func (b *build) layer(arch string) ([]byte, error) {
	var out bytes.Buffer
	t := tar.NewWriter(&out)
	add := func(name string, mode int64, owner int, data []byte) error {
		h := &tar.Header{
			Name: name, Mode: mode, Uid: owner, Gid: owner, ModTime: b.when,
			Typeflag: tar.TypeReg, Size: int64(len(data)), Format: tar.FormatPAX,
		}
		if strings.HasSuffix(name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		_, err := t.Write(data)
		return err
	}
	passwd := fmt.Sprintf("root:x:0:0:root:/:/sbin/nologin\n"+
		"queuepump:x:%d:%d:queuepump:%s:/sbin/nologin\n", imageUser, imageUser, imageHome)
	group := fmt.Sprintf("root:x:0:\nqueuepump:x:%d:\n", imageUser)
	copyright, err := os.ReadFile(filepath.Join(b.out, "files", docFolder, "copyright"))
	err = errors.Join(err, add("tmp/", 0o1777, 0, nil))
	for _, dir := range []string{
		"etc/", "usr/", "usr/bin/", "usr/share/", "usr/share/doc/", docFolder + "/", "var/", "var/lib/",
	} {
		err = errors.Join(err, add(dir, 0o755, 0, nil))
	}
	for _, name := range imagePrograms {
		data, readErr := os.ReadFile(filepath.Join(b.built(arch), name))
		err = errors.Join(err, readErr, add("usr/bin/"+name, 0o755, 0, data))
	}
	err = errors.Join(err,
		add("etc/passwd", 0o644, 0, []byte(passwd)), add("etc/group", 0o644, 0, []byte(group)),
		add(docFolder+"/copyright", 0o644, 0, copyright),
		add(imageHome[1:]+"/", 0o750, imageUser, nil), t.Close())
	return out.Bytes(), err
}

// writeLayout writes an index as one tar.
func (b *build) writeLayout(file string, index v1.ImageIndex) error {
	dir, err := os.MkdirTemp("", "queuepump-layout")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	err = p.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": b.imageTag(),
		"io.containerd.image.name":          "docker.io/library/" + imageName + ":" + b.imageTag(),
	}))
	if err != nil {
		return err
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	t := tar.NewWriter(f)
	if err := t.AddFS(os.DirFS(dir)); err != nil {
		return err
	}
	return errors.Join(t.Close(), f.Close())
}
