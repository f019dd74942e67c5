package protocol

// FunctionOnMessage is the function whose observers are the subscribers of
// topics. It is the mesh's own: a call of it is FORBIDDEN.
const FunctionOnMessage = "queue::on-message"

// DefaultNamespace is that of workers and functions that name none.
const DefaultNamespace = "default"
