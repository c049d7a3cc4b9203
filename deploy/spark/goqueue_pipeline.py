"""goqueue-pipeline as a file, as spark-submit wants programs; the image has it in /opt/goqueue."""

from goqueue_server.pipeline.main import main

if __name__ == "__main__":
    main()
