//go:build unix

package service

import "net"

// notify sends one datagram. The library's function takes the socket from the environment, and it
// must not stay there.
func notify(socket, state string) error {
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Write([]byte(state))
	return err
}
