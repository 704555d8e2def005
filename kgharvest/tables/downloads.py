"""Functions that return files as HTTP responses."""

from django.http import HttpResponse, StreamingHttpResponse

from kgharvest.bulk.file_writing import in_chunks
from kgharvest.tables.formats import FORMATS, Content


def download(content: Content, file_name: str = "", content_type: str = "") -> HttpResponse | StreamingHttpResponse:
    """Return a file that browsers save under `file_name`. If the content is an iterator, it is streamed.

    content_type: by default derived from the suffix of the file name. Required if there is no file name.
    """
    content_type = content_type or FORMATS[file_name.rpartition(".")[2]].content_type
    if isinstance(content, str | bytes):
        response = HttpResponse(content, content_type=content_type)
    else:
        response = StreamingHttpResponse(in_chunks(content), content_type=content_type)
    if file_name:
        response["Content-Disposition"] = f'attachment; filename="{file_name}"'
    return response
