"""Languages and countries offered as choices. Countries and territories follow ISO 3166."""


def _names(text: str) -> tuple[str, ...]:
    return tuple(" ".join(name.split()) for name in text.split(";"))


LANGUAGES = _names(
    """
    Afrikaans; Albanian; Amharic; Arabic; Armenian; Assamese; Azerbaijani; Basque; Belarusian; Bengali; Bosnian;
    Bulgarian; Burmese; Cantonese; Catalan; Cebuano; Croatian; Czech; Danish; Dutch; English; Estonian; Finnish;
    French; Galician; Georgian; German; Greek; Gujarati; Haitian Creole; Hausa; Hebrew; Hindi; Hungarian; Icelandic;
    Igbo; Indonesian; Irish; Italian; Japanese; Javanese; Kannada; Kazakh; Khmer; Kinyarwanda; Korean; Kurdish; Lao;
    Latvian; Lithuanian; Macedonian; Malay; Malayalam; Maltese; Mandarin; Marathi; Mongolian; Nepali; Norwegian;
    Odia; Oromo; Pashto; Persian; Polish; Portuguese; Punjabi; Romanian; Russian; Serbian; Shona; Sindhi; Sinhala;
    Slovak; Slovenian; Somali; Spanish; Sundanese; Swahili; Swedish; Tagalog; Tamil; Telugu; Thai; Tigrinya;
    Turkish; Ukrainian; Urdu; Uzbek; Vietnamese; Welsh; Wolof; Xhosa; Yoruba; Zulu; A sign language; Another
    language
    """
)

COUNTRIES = _names(
    """
    Afghanistan; Åland Islands; Albania; Algeria; American Samoa; Andorra; Angola; Anguilla; Antigua and Barbuda;
    Argentina; Armenia; Aruba; Australia; Austria; Azerbaijan; Bahamas; Bahrain; Bangladesh; Barbados; Belarus;
    Belgium; Belize; Benin; Bermuda; Bhutan; Bolivia; Bosnia and Herzegovina; Botswana; Brazil; Brunei; Bulgaria;
    Burkina Faso; Burundi; Cambodia; Cameroon; Canada; Cape Verde; Caribbean NL; Cayman Islands; Central African
    Rep.; Chad; Chile; China; Christmas Island; Cocos (Keeling) Islands; Colombia; Comoros; Congo, Democratic
    Republic; Congo, Republic; Cook Islands; Costa Rica; Côte d'Ivoire; Croatia; Cuba; Curaçao; Cyprus; Czechia;
    Denmark; Djibouti; Dominica; Dominican Republic; East Timor; Ecuador; Egypt; El Salvador; Equatorial Guinea;
    Eritrea; Estonia; Eswatini; Ethiopia; Falkland Islands; Faroe Islands; Fiji; Finland; France; French Guiana;
    French Polynesia; Gabon; Gambia; Georgia; Germany; Ghana; Gibraltar; Greece; Greenland; Grenada; Guadeloupe;
    Guam; Guatemala; Guernsey; Guinea; Guinea-Bissau; Guyana; Haiti; Honduras; Hong Kong; Hungary; Iceland; India;
    Indonesia; Iran; Iraq; Ireland; Isle of Man; Israel; Italy; Jamaica; Japan; Jersey; Jordan; Kazakhstan; Kenya;
    Kiribati; Kuwait; Kyrgyzstan; Laos; Latvia; Lebanon; Lesotho; Liberia; Libya; Liechtenstein; Lithuania;
    Luxembourg; Macau; Madagascar; Malawi; Malaysia; Maldives; Mali; Malta; Marshall Islands; Martinique;
    Mauritania; Mauritius; Mayotte; Mexico; Micronesia; Moldova; Monaco; Mongolia; Montenegro; Montserrat; Morocco;
    Mozambique; Myanmar; Namibia; Nauru; Nepal; Netherlands; New Caledonia; New Zealand; Nicaragua; Niger; Nigeria;
    Niue; Norfolk Island; North Korea; North Macedonia; Northern Mariana Islands; Norway; Oman; Pakistan; Palau;
    Palestine; Panama; Papua New Guinea; Paraguay; Peru; Philippines; Pitcairn; Poland; Portugal; Puerto Rico;
    Qatar; Réunion; Romania; Russia; Rwanda; Saint Barthelemy; Saint Helena; Saint Kitts and Nevis; Saint Lucia;
    Saint Maarten (Dutch); Saint Martin (French); Saint Pierre and Miquelon; Saint Vincent; Samoa; San Marino; Sao
    Tome and Principe; Saudi Arabia; Senegal; Serbia; Seychelles; Sierra Leone; Singapore; Slovakia; Slovenia;
    Solomon Islands; Somalia; South Africa; South Korea; South Sudan; Spain; Sri Lanka; Sudan; Suriname; Svalbard
    and Jan Mayen; Sweden; Switzerland; Syria; Taiwan; Tajikistan; Tanzania; Thailand; Togo; Tokelau; Tonga;
    Trinidad and Tobago; Tunisia; Turkey; Turkmenistan; Turks and Caicos Is; Tuvalu; Uganda; Ukraine; United Arab
    Emirates; United Kingdom; United States; Uruguay; Uzbekistan; Vanuatu; Vatican City; Venezuela; Vietnam; Virgin
    Islands (UK); Virgin Islands (US); Wallis and Futuna; Western Sahara; Yemen; Zambia; Zimbabwe
    """
)
