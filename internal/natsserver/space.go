package natsserver

// Space is what the disk of the store has left, and its size, in
// bytes. The error wraps errors.ErrUnsupported where the system does not tell.
func (s *Server) Space() (free, total int64, err error) { return diskSpace(s.dir) }

// Storing says whether the server can store. It goes on without, all or a stream
// of it, when it could not write to the disk; only another start changes that.
func (s *Server) Storing() bool { return s.nats.JetStreamEnabled() && !s.log.unwritable.Load() }

// allSpace is more than a disk has.
const allSpace = 1 << 60
