"""An S3 store of this machine."""

from contextlib import contextmanager


@contextmanager
def serve_s3():
    """Its endpoint.  moto is imported by the tests that need it alone: every worker would spend most of a second."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()
