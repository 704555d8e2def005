"""Optional apps that come with kgharvest, as in django.contrib. Nothing outside this package imports them."""
