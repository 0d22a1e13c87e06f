from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package")
def bucket() -> Iterator[str]:
    """A bucket of a server on this machine that answers as S3 does."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer(port=0, verbose=False)
    s3fs = pytest.importorskip("s3fs")
    server.start()
    with pytest.MonkeyPatch.context() as patch:
        host, port = server.get_host_and_port()
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "none")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        s3fs.S3FileSystem.clear_instance_cache()  # which may know another server
        s3fs.S3FileSystem().mkdir("corpus")
        yield "s3://corpus"
        s3fs.S3FileSystem.clear_instance_cache()
    server.stop()
