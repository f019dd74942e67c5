// Package mesh is what every service needs to be one of the mesh: a
// connection, endpoints that NATS micro tools can see, requests to the other
// services, and a lifecycle.
package mesh
